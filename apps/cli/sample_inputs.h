// Inputs for timing or checking networks without a prompt.
#pragma once
#include <optional>

#include "tenon/core/host_tensor.h"
#include "tenon/runtime/executable.h"

namespace tenon::cli {

/// Sets every input of the executable to reproducible values that suit its name and type: token ids, timesteps, a
/// position in a cache that leaves room for the tokens; otherwise numbers of variance 1.
void set_sample_inputs(Executable& executable);
/// Keys that each text of a language model's plan has in its cache after a run with these inputs; empty if a state, not
/// an input, says where the tokens go.
std::optional<int64_t> sample_keys(const Plan& plan);

}  // namespace tenon::cli
