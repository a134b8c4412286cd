// C entry point of the pixel grader, for Python: grades one picture against one line of prompts.txt.
#include <cstdio>
#include <exception>

#include "tests/grader/grader.h"

extern "C" int tenon_grade(const unsigned char* rgb, int w, int h, const char* line, char* reason, int size) {
  try {
    const auto result = tenon::grader::grade(rgb, w, h, tenon::grader::parse_prompt(line).expected);
    std::snprintf(reason, size_t(size), "%s", result.reason.c_str());
    return result.pass ? 1 : 0;
  } catch (const std::exception& error) {
    std::snprintf(reason, size_t(size), "%s", error.what());
    return -1;
  }
}
