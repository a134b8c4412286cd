// How many launches a plan has, of which kind, and how many bytes they move.
#pragma once
#include "tenon/plan/plan.h"

namespace tenon {

/// Launches of a phase: all of them and, of those without an anchor, how many do each of these only.
struct PlanCounts {
  int total = 0, elementwise = 0, concat = 0, permute = 0, upsample = 0;
};
PlanCounts counts_of(const Plan& plan, Rate rate = Rate::Step);

/// Bytes that one run of the launch moves: what it reads of every distinct operand, once, plus every output written
/// once. Weights that an anchor multiplies count in its arithmetic type if that is narrower.
int64_t bytes_moved(const Launch& launch);
/// Bytes that one run of the phase moves.
int64_t bytes_moved(const Plan& plan, Rate rate = Rate::Step);

}  // namespace tenon
