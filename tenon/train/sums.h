// Invented word problems and sums: what the embedded language model was trained on and can be trained on further.
#pragma once
#include <cstdint>
#include <string>

namespace tenon {

/// Which part of the problems: one in eight questions is held out, by a checksum of its words, so that no question
/// occurs in both parts, for any seed.
enum class SumsSplit : uint8_t { Train, HeldOut };

struct Problem {
  std::string prompt;     ///< "Ann has 3 apples and buys 4. How many?"
  std::string answer;     ///< a line per step, "3+4=7", and a last line with the result, "#### 7"
  std::string columns{};  ///< other fields of a row of data, as a JSON object; empty: none
  std::string place{};    ///< "data.jsonl:7", for a row of data
};

/// Problem `index` of a seed: never changes, and needs none of the preceding ones. Additions, subtractions and
/// multiplications of small numbers, in one step or two, in words or bare ("What is 3 + 4?"); all intermediate results
/// are integers from 0 to 200. Questions may recur at another index. Error(Usage): a negative index.
Problem sums_problem(uint64_t seed, int64_t index, SumsSplit split = SumsSplit::Train);

/// "train", "held-out". Error(Usage) for another name.
SumsSplit parse_sums_split(const std::string& name);

}  // namespace tenon
