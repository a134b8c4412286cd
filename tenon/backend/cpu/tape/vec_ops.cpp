#include "tenon/backend/cpu/tape/vec_ops.h"

#include "tenon/backend/cpu/tape/vec_tables.h"

namespace tenon::cpu {

const VecOps& vec_ops(Isa isa) { return isa < Isa::Avx512 ? vec_ops_avx2() : vec_ops_avx512(); }

}  // namespace tenon::cpu
