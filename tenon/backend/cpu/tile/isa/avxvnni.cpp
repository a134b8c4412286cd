// What AVX-VNNI adds to AVX2: products of i8 in blocks.
#include "tenon/backend/cpu/tile/isa/vec_avx2.h"
// After the vector vocabulary:
#include "tenon/backend/cpu/tile/isa/four_bytes.h"
#include "tenon/backend/cpu/tile/isa/i8_kernels.h"
#include "tenon/backend/cpu/tile/isa/tables.h"

namespace tenon::cpu {

void avx_vnni_gemm_i8(const TileArgs& args) { i8_tiles<DotFourBytes>(args); }

}  // namespace tenon::cpu
