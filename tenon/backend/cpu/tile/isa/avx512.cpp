// The kernels for AVX-512 F, BW, VL and DQ.
#include "tenon/backend/cpu/tile/isa/vec_avx512.h"
// After the vector vocabulary:
#include "tenon/backend/cpu/tile/isa/vector_table.h"

namespace tenon::cpu {

const TileOps kAvx512Ops = vector_table<DotWidened, DotWidenedI8, DotI16>(Isa::Avx512, "avx512", false);

}  // namespace tenon::cpu
