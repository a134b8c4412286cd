// The matrix kernels of one instruction set as a table of functions, and the packed operand formats they share.
//
// Both element types have the same geometry, so drivers need not know which one they handle:
//   term    a unit of K: 32 bf16 or 16 f32 = 64 bytes of one row (a "line"); K is zero-padded to whole terms
//   word    four bytes of a line, and the line of B that they are multiplied by: two bf16, one f32 or four i8
//   (i8     a term is a block of 32 numbers with its own scale: I8Line, I8Term)
//   A       lines; the line of row m, term t is at a + a_off[t] + m * a_stride, so a convolution's tap is an offset
//   B       panels of 16 columns, 1024 bytes per term: bf16 [16 k-pairs][16 columns][2], f32 [16 k][16 columns];
//           N is zero-padded to whole panels
//   C       f32, a whole number of panels wide
// All schedules sum an output element in the order of k, so blocking and threads never change a result; rounding does
// differ between instruction sets. Kernels read at least 16 rows of A: that memory must be readable (the values of rows
// beyond the last are ignored).
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "tenon/core/dtype.h"

namespace tenon::cpu {

enum class Isa : uint8_t { Avx2, AvxVnni, Avx512, Avx512Vnni, Avx512Bf16, Amx };
inline constexpr int kIsaCount = 6;

inline constexpr int64_t kLine = 64;     ///< bytes of one row of one term
inline constexpr int kPanel = 16;        ///< columns of one panel
inline constexpr int64_t kBlock = 1024;  ///< bytes of one term of one panel

/// Elements of K in one term: 32 for bf16 and i8, 16 for f32.
inline constexpr int term_elements(DType t) { return t == DType::F32 ? 16 : 32; }
/// A line of i8: one block (core/i8_blocks.h) of a row.
struct I8Line {
  int8_t q[32];
  float scale;
  int32_t correction;  ///< -128 times the sum of q: columns are stored plus 128
  int32_t unused[6];
};
static_assert(sizeof(I8Line) == kLine);
/// A term of a panel of i8: one block of each of 16 columns. Instructions multiply unsigned by signed bytes.
struct I8Term {
  uint16_t scale[kPanel];   ///< f16
  uint8_t q[8][kPanel][4];  ///< + 128, in groups of four along K
};
inline constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline constexpr int64_t round_up(int64_t a, int64_t b) { return div_up(a, b) * b; }

/// C[m][panels * 16] (+)= sum over terms of A_t[m][:] * B_t[:][n].
struct TileArgs {
  const void* a;
  const int64_t* a_off;  ///< byte offset of each term
  int64_t a_stride;      ///< bytes between rows: 64 or 128, or any if TileOps::reads_rows
  const void* b;         ///< first term of the first panel
  int64_t b_stride;      ///< bytes between panels
  float* c;
  int64_t ldc;  ///< elements between rows of C, a multiple of 16
  int64_t terms;
  int m, panels;    ///< both >= 1
  bool accumulate;  ///< add to C; otherwise overwrite it
  int last = 16;    ///< words of the last term with data (bf16: k-pairs, f32: k); the rest are zeros in A and B
  /// For a single row whose columns come from memory (TileOps::one_stream): reads panels one after another, not several
  /// side by side as registers allow.
  bool streams = false;
  /// Set by the kernels themselves: lines to fetch into the L2 cache during each term, `fetched_lines` from `fetched`
  /// on for the first.
  const char* fetched = nullptr;
  int fetched_lines = 0;
};

/// Packs rows into lines: line j of row r goes to dst + r * row_stride + j * term_stride, j < div_up(k, term_elements).
/// `src` is f32, bf16 or f16, row-major with `ld` elements between rows (any alignment); elements beyond k become
/// zeros.
struct PackRowsArgs {
  const void* src;
  DType src_type;
  int64_t ld;
  int64_t rows, k;
  void* dst;
  DType dst_type;  ///< BF16, F32 or I8
  int64_t row_stride, term_stride;
};

/// Packs up to 16 weight rows into `terms` blocks of one panel: column c, element k = src[c][k]; columns >= cols and
/// k >= k_size become zeros. Sources are f32, f16, bf16 or e4m3, with any alignment.
struct PackPanelArgs {
  const void* src;
  DType src_type;
  int64_t ld;  ///< elements between rows
  int64_t k_size;
  int cols;
  void* dst;       ///< terms * kBlock bytes
  DType dst_type;  ///< BF16 or F32
};

/// Packs a K-major source: element k of column n = src[k * ld + n]. Writes the terms of `k_rows` rows (the last one
/// zero-padded) of div_up(cols, 16) panels: panel p goes to dst + p * panel_stride.
struct PackColumnsArgs {
  const void* src;
  DType src_type;
  int64_t ld;
  int64_t k_rows, cols;
  void* dst;
  DType dst_type;
  int64_t panel_stride;
};

/// A score whose weight is 0.
inline constexpr float kHiddenScore = -std::numeric_limits<float>::infinity();

/// One block of streaming softmax over scores s[rows][cols] (f32, row stride ld >= round_up(cols, 32); overwrites
/// columns beyond cols). row_max and row_sum are running values; p receives exp(scale * s - new max) as A lines of
/// p_type (columns beyond cols as zeros, up to whole terms); o[rows][o_cols] is multiplied by exp(old max - new max).
struct SoftmaxArgs {
  float* s;
  int64_t ld;
  int rows, cols;
  float scale;  ///< > 0, already multiplied by log2(e)
  float *row_max, *row_sum;
  void* p;
  DType p_type;
  int64_t p_term_stride;  ///< bytes between terms of P; lines of one term are kLine apart
  float* o;
  int64_t o_ld;
  int o_cols;
  bool first;  ///< no running values yet: row_max, row_sum and o are not read
};

/// A row of Winograd F(4x4, 3x3) tiles (winograd.h): tile i is the 6 x 6 pixels of six image rows from column 4 i on.
/// Point xi = 6 * y + x of the transformed tile, channels 16 t .. 16 t + 15, goes to the line at
/// dst + xi * point_stride + t * term_stride + i * kLine.
struct WinogradInputArgs {
  const float* rows[6];
  int64_t ld;  ///< elements between pixels; channels up to 16 * terms must be readable
  int64_t terms;
  int tiles;
  void* dst;
  int64_t point_stride, term_stride;  ///< bytes
};

/// Sums m[xi][tile][column] -> 4 rows of 4 * tiles pixels: out[y * row_ld + (4 tile + x) * ld + column], times `scale`.
struct WinogradOutputArgs {
  const float* m;
  int64_t point_stride, ld;  ///< elements between points; between tiles of m and between pixels of out
  int tiles, cols;           ///< cols: a multiple of 16
  float* out;
  int64_t row_ld;
  float scale;
};

struct TileOps {
  Isa isa;
  const char* name;      ///< "amx", "avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2"
  bool bf16_arithmetic;  ///< the processor multiplies bf16, and gemm_bf16 is at least as fast as gemm_f32
  /// Bytes of B, for kMaxTileCols columns of an epilogue tile, that stay in the L2 cache beside A. Drivers process a
  /// longer K in chunks, with several row tiles per chunk.
  int64_t chunk_bytes;
  bool one_stream;  ///< a single row reads columns from memory faster as one stream than as several
  bool reads_rows;  ///< gemm_bf16 takes any a_stride: bf16 rows need no packing
  /// gemm_bf16 is so fast that columns have to serve more rows than fit the L2 cache with all of a long K.
  bool outruns_memory;
  /// Called by drivers at the start and end of a task that uses the kernels (AMX: configure and release the tiles).
  void (*enter)();
  void (*leave)();
  void (*gemm_bf16)(const TileArgs&);  ///< on every machine; without bf16 arithmetic it widens to f32
  /// bf16 rows, i8 columns: B is [16 k-pairs][2][16 columns] i8, 512 bytes per term of a panel. Same products and sums
  /// as gemm_bf16, bit for bit.
  void (*gemm_bf16_i8)(const TileArgs&);
  int rows_in_passing;  ///< up to so many rows, gemm_bf16_i8 is faster than widening i8 columns for gemm_bf16
  void (*gemm_f32)(const TileArgs&);
  /// i8 in blocks: integer sums over a term, multiplied by both scales and added in f32. a_stride: kLine.
  void (*gemm_i8)(const TileArgs&);
  /// f32 rows, f16 columns: B is [16 k][16 columns] f16, 512 bytes per term of a panel.
  void (*gemm_f32_f16)(const TileArgs&);
  void (*pack_rows)(const PackRowsArgs&);
  void (*pack_panel)(const PackPanelArgs&);
  void (*pack_columns)(const PackColumnsArgs&);
  /// dst[i] = value of src[i]: f32, bf16, f16, e4m3 to f32. Any alignment.
  void (*widen)(const void* src, DType src_type, float* dst, int64_t n);
  /// Converts n elements of an i8 panel to bf16; n is a multiple of 32.
  void (*widen_i8)(const void* src, void* dst, int64_t n);
  /// Converts n elements of e4m3 to bf16 in the same order; n is a multiple of 32.
  void (*widen_e4m3)(const void* src, void* dst, int64_t n);
  /// dst[i] = src[i] rounded to nearest even: f32 to bf16, f16 or f32.
  void (*narrow)(const float* src, void* dst, DType dst_type, int64_t n);
  void (*softmax)(const SoftmaxArgs&);
  /// o[r][0..cols) /= row_sum[r].
  void (*softmax_end)(float* o, int64_t ld, int rows, int cols, const float* row_sum);
  void (*winograd_input)(const WinogradInputArgs&);
  void (*winograd_output)(const WinogradOutputArgs&);

  void gemm(DType t, const TileArgs& args) const {
    (t == DType::BF16 ? gemm_bf16 : t == DType::I8 ? gemm_i8 : gemm_f32)(args);
  }
};

/// The table of one instruction set, or nullptr if this machine cannot run it.
const TileOps* tile_ops(Isa isa);
/// The best table of this machine, or of those up to TENON_CPU_ISA; throws Error(Usage) for an unknown name there and
/// Error(Device) on a machine without AVX2, FMA and F16C.
const TileOps& tile_ops();
/// Bytes of L2 cache per core (1 MiB if unknown).
int64_t l2_bytes();

}  // namespace tenon::cpu
