// The kernels for AVX2, FMA and F16C.
#include "tenon/backend/cpu/tile/isa/vec_avx2.h"
// After the vector vocabulary:
#include "tenon/backend/cpu/tile/isa/vector_table.h"

namespace tenon::cpu {

const TileOps kAvx2Ops = vector_table<DotWidened, DotWidenedI8, DotI16>(Isa::Avx2, "avx2", false);

}  // namespace tenon::cpu
