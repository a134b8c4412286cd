// A completion as rewards see it.
#pragma once
#include <cstdint>
#include <string_view>

namespace tenon::train {

struct Judged {
  std::string_view text, gold;           ///< without control tokens; the answer that the data has
  int64_t tokens = 0, longest = 1;       ///< of the completion, and the most that one may have
  std::string_view prompt{}, columns{};  ///< as the data has them: Problem::prompt, Problem::columns
};

}  // namespace tenon::train
