// Checks of a plan against the meaning of its program.
#pragma once
#include "tests/planned/devices.h"
#include "tests/planned/random_program.h"

namespace tenon::planned {

/// What a check found wrong; empty: nothing. `plan` where the fault lies in one.
struct Finding {
  std::string what;
  explicit operator bool() const { return !what.empty(); }
};

/// Options as text: "fusion=0 fold_scales=0".
std::string text_of(const PlanOptions& options);

/// Plans the program, prints and parses the plan, and computes it launch by launch in fp64: its results must be the
/// program's. (Where scales are folded into narrow weights they round otherwise: then nearly.) `want` receives the
/// program's results.
Finding check_meaning(const Program& program, const PlanOptions& options);

/// Runs the plan on a device, every buffer in memory of its own, and checks each launch against the oracle on the
/// values that it read; then in the plan's arena, twice, where the bits must be the same.
Finding check_run(const Program& program, const PlanOptions& options, const Device& device);

}  // namespace tenon::planned
