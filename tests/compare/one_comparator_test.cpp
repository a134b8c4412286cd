// There is only one comparator. Other code that tracks the worst difference itself sooner or later overlooks a NaN.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

namespace {
namespace fs = std::filesystem;

TEST(OneComparator, NobodyKeepsTheWorstDifferenceByItself) {
  const std::regex own(R"(\bf?max\([^;]*\bf?abs\([^;]* - |<= *worst\b|\bworst *= |\bfmax\()");
  int read = 0;
  for (const char* folder : {"apps", "bench", "examples", "tenon", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(TENON_SOURCE_DIR) / folder)) {
      const std::string path = entry.path().string(), kind = entry.path().extension().string();
      if (kind != ".cpp" && kind != ".h") continue;
      if (path.find("/grader/") != path.npos || path.find("one_comparator_test") != path.npos) continue;
      std::ifstream in(path);
      std::string line;
      for (int number = 1; std::getline(in, line); ++number)
        if (std::regex_search(line, own) && line.find("Math.max") == line.npos)
          ADD_FAILURE() << path << ":" << number << ": " << line << "\ncore/compare.h compares";
      ++read;
    }
  EXPECT_GT(read, 400);
}

}  // namespace
