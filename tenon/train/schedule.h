// Learning rates by the number of a step.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tenon::train {

/// What becomes of the rate behind the warm-up; names as transformers' get_scheduler has them.
enum class Decay : uint8_t { Constant, Linear, Cosine };

struct Schedule {
  double peak = 1e-6;
  Decay decay = Decay::Constant;
  int64_t warm_up = 0;  ///< steps until the peak is reached, linearly: step n of w has n / w of it
  int64_t steps = 0;    ///< of the whole run: Linear and Cosine would reach `least` one step later

  double least = 0;  ///< the rate at the end, a share of the peak

  /// Of step `number`, from 1: behind the warm-up as transformers' schedules, whose last step still trains. Their first
  /// step of a warm-up has a rate of 0 and changes nothing; ours has 1 / w of the peak.
  double rate(int64_t number) const;
};

/// "constant", "linear", "cosine"; Error(Usage) for another name.
Decay decay_of(const std::string& name);
std::vector<std::string> decay_names();
/// Error(Usage) that names what is out of its range.
void check_schedule(const Schedule& s);

}  // namespace tenon::train
