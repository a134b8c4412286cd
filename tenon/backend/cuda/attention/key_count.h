// The number of keys of a batch entry, as attention's kernels read it.
#pragma once
#include <string>

#include "tenon/backend/cuda/codegen/params.h"
#include "tenon/expr/expr.h"

namespace tenon::cuda {

/// "struct Keys { .. };" (device/attention/attention_keys.h). `count`: an operand with one number, or one per batch
/// entry; if empty, the sizes hold it. Adds to the kernel's parameters and headers.
std::string keys_source(const Expr& count, Params& params, std::string& headers);

}  // namespace tenon::cuda
