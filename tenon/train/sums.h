// Word problems and sums, invented: what the embedded language model has learned of and is trained further on.
#pragma once
#include <cstdint>
#include <string>

namespace tenon {

/// Which problems: one in eight questions is held out, by a checksum of its words, so that no question of one part
/// occurs in the other, whatever the seeds.
enum class SumsSplit : uint8_t { Train, HeldOut };

struct Problem {
  std::string prompt;     ///< "Ann has 3 apples and buys 4. How many?"
  std::string answer;     ///< a line for each step, "3+4=7", and a last line with the result, "#### 7"
  std::string columns{};  ///< what a row of data holds beside these, a JSON object; empty: nothing
  std::string place{};    ///< "data.jsonl:7", of a row of data
};

/// Problem `index` of a seed's: the same for ever, and drawn without those in front of it. Additions, subtractions and
/// multiplications of small numbers, in one step or two, in words or bare ("What is 3 + 4?"); all numbers on the way
/// are whole, 0 to 200. Questions may come again at another index. Error(Usage): a negative index.
Problem sums_problem(uint64_t seed, int64_t index, SumsSplit split = SumsSplit::Train);

/// "train", "held-out". Error(Usage) for another name.
SumsSplit parse_sums_split(const std::string& name);

}  // namespace tenon
