// A completion as passed to rewards.
#pragma once
#include <cstdint>
#include <string_view>

namespace tenon::train {

struct Judged {
  std::string_view text, gold;           ///< text without control tokens; gold: the answer in the data
  int64_t tokens = 0, longest = 1;       ///< of the completion; longest: the limit on a completion
  std::string_view prompt{}, columns{};  ///< from the data: Problem::prompt, Problem::columns
};

}  // namespace tenon::train
