// Inputs for networks that are run without a prompt: to be timed or checked.
#pragma once
#include "tenon/core/host_tensor.h"
#include "tenon/runtime/executable.h"

namespace tenon::cli {

/// Reproducible values that suit the input's name and type: token ids, timesteps, else numbers of variance 1.
HostTensor sample_input(const Buffer& buffer);
/// Sets every input of the executable.
void set_sample_inputs(Executable& executable);

}  // namespace tenon::cli
