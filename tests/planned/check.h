// Checks a plan against the semantics of its program.
#pragma once
#include "tests/planned/devices.h"
#include "tests/planned/random_program.h"

namespace tenon::planned {

/// The error found by a check; empty if none. `plan` is set if the fault is in one.
struct Finding {
  std::string what;
  explicit operator bool() const { return !what.empty(); }
};

/// Options as text: "fusion=0 fold_scales=0".
std::string text_of(const PlanOptions& options);

/// Plans the program, prints and parses the plan, and computes it launch by launch in fp64: the results must be the
/// program's. If scales are folded into narrow weights, which round differently, they must be so without any rounding,
/// and with it no less precise than the program's.
Finding check_meaning(const Program& program, const PlanOptions& options);

/// Runs the plan on a device with separate memory for every buffer, and checks each launch against the oracle on the
/// values that it read; then in the plan's arena, twice, which must give the same bits.
Finding check_run(const Program& program, const PlanOptions& options, const Device& device);

}  // namespace tenon::planned
