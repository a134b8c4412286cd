// Training data: problems with answers, in an order determined by a seed.
#pragma once
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tenon/train/sums.h"

namespace tenon::train {

/// Problem number k of a run, k from 0, without end.
using ProblemAt = std::function<Problem(int64_t k)>;

/// Rows of a JSON Lines file: objects with strings "prompt" or "question", and "answer"; other keys are for rewards;
/// blank lines are skipped. Error(Usage) names the file and the line: no such file, not UTF-8, not an object, a key
/// that is missing or not a string, no rows.
std::vector<Problem> read_problems(const std::filesystem::path& file);
/// The same for text; `where` stands for the file.
std::vector<Problem> parse_problems(std::string_view text, const std::string& where);

/// Names of the columns that at least one row has. Error(Usage) for columns that are not a JSON object.
std::set<std::string> column_names(const std::vector<Problem>& rows);

/// All problems in a random order, then all in another random order, and so on. Error(Usage) when one of none is
/// asked for.
ProblemAt shuffled(std::vector<Problem> problems, uint64_t seed);
/// Index of a run's problem k, in the permutation of n that seed and k / n determine.
int64_t shuffled_index(int64_t k, int64_t n, uint64_t seed);

}  // namespace tenon::train
