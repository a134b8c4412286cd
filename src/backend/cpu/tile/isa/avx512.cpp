// The kernels for AVX-512 F, BW, VL and DQ.
#include "tenon/backend/cpu/tile/isa/tables.h"
#include "tenon/backend/cpu/tile/isa/vec_avx512.h"
// After the vector vocabulary:
#include "tenon/backend/cpu/tile/isa/dot_kernels.h"
#include "tenon/backend/cpu/tile/isa/row_kernels.h"
#include "tenon/backend/cpu/tile/isa/winograd_kernels.h"

namespace tenon::cpu {

const TileOps kAvx512Ops = {Isa::Avx512,
                            "avx512",
                            false,
                            kVectorChunk,
                            false,
                            no_tiles,
                            no_tiles,
                            gemm_tiles<DotWidened>,
                            gemm_tiles<DotF32>,
                            gemm_tiles<DotHalf>,
                            pack_rows,
                            pack_panel,
                            pack_columns,
                            widen,
                            narrow,
                            softmax,
                            softmax_end,
                            winograd_input,
                            winograd_output};

}  // namespace tenon::cpu
