// A prepared plan as text files (TENON_DUMP).
#pragma once
#include "tenon/plan/plan.h"

namespace tenon {

/// Writes <plan>.plan (as print_plan) and, for launch i, forms/<plan>/<i>-<launch>.txt: its skeleton and form, i.e.
/// lets, the contents of each hole, and outputs, one node per line. Does nothing unless TENON_DUMP is set.
void dump_plan(const Plan& plan);

}  // namespace tenon
