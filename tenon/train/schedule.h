// Learning rates by step number.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tenon::train {

/// How the rate decays after the warm-up; names as in transformers' get_scheduler.
enum class Decay : uint8_t { Constant, Linear, Cosine };

struct Schedule {
  double peak = 1e-6;
  Decay decay = Decay::Constant;
  int64_t warm_up = 0;  ///< steps of linear warm-up: step n of w has n / w of the peak
  int64_t steps = 0;    ///< of the whole run; Linear and Cosine would reach `least` one step after the last

  double least = 0;  ///< final rate, as a fraction of the peak

  /// The rate of step `number`, counted from 1. After the warm-up same as transformers' schedules, whose last step
  /// still trains. Their first warm-up step has rate 0 and changes nothing; ours has 1 / w of the peak.
  double rate(int64_t number) const;
};

/// "constant", "linear", "cosine"; Error(Usage) for another name.
Decay decay_of(const std::string& name);
std::vector<std::string> decay_names();
/// Error(Usage) that names a value out of range.
void check_schedule(const Schedule& s);

}  // namespace tenon::train
