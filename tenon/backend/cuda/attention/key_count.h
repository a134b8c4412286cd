// How many keys a batch entry has, as attention's kernels read it.
#pragma once
#include <string>

#include "tenon/backend/cuda/codegen/params.h"
#include "tenon/expr/expr.h"

namespace tenon::cuda {

/// "struct Keys { .. };" (device/attention_keys.h). `count`: the operand with one number, or one of each batch entry;
/// if it is empty, the sizes say it. Adds to the kernel's parameters and headers.
std::string keys_source(const Expr& count, Params& params, std::string& headers);

}  // namespace tenon::cuda
