// The tables of all instruction sets, each defined in its own file with its own compiler flags.
#pragma once
#include "tenon/backend/cpu/tape/vec_ops.h"

namespace tenon::cpu {

const VecOps& vec_ops_avx2();
const VecOps& vec_ops_avx512();

}  // namespace tenon::cpu
