// Rows of data, and answers extracted from texts: any bytes give rows or Error(Usage), and an answer is a number.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tenon/core/error.h"
#include "tenon/train/problems.h"
#include "tenon/train/rewards.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto extractor : {tenon::train::Extractor::Robust, tenon::train::Extractor::Compat}) {
    const auto found = tenon::train::extract_answer(text, extractor);
    if (found && found->find_first_not_of("-0123456789.") != std::string::npos) std::abort();
    tenon::train::gold_answer(text, extractor);
  }
  try {
    tenon::train::parse_problems(text, "data");
  } catch (const tenon::Error& e) {
    if (e.kind() != tenon::ErrorKind::Usage) std::abort();
  }
  return 0;
}
