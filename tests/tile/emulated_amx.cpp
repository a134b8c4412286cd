// The matrix-tile kernel of the AMX table on emulated tiles: the same source text, with sixteen rows of 64 bytes per
// tile.
#include "tenon/backend/cpu/tile/isa/amx_gemm.h"

#include "tests/tile/support.h"

namespace tenon::cpu::test {
namespace {

thread_local uint32_t tiles[8][16][16];

struct EmulatedTiles {
  template <int i>
  static void zero() {
    std::memset(tiles[i], 0, sizeof(tiles[i]));
  }
  template <int i>
  static void load(const void* base, int64_t stride) {
    for (int r = 0; r < 16; ++r) std::memcpy(tiles[i][r], static_cast<const std::byte*>(base) + r * stride, 64);
  }
  template <int i>
  static void store(void* base, int64_t stride) {
    for (int r = 0; r < 16; ++r) std::memcpy(static_cast<std::byte*>(base) + r * stride, tiles[i][r], 64);
  }
  // Pairs are multiplied in f32; sums of even and of odd elements are added at the end, as in the instruction.
  template <int c, int a, int b>
  static void dot() {
    float weights[2][16][16];
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 16; ++n) {
        weights[0][k][n] = std::bit_cast<float>(tiles[b][k][n] << 16);
        weights[1][k][n] = std::bit_cast<float>(tiles[b][k][n] & 0xffff0000u);
      }
    for (int m = 0; m < 16; ++m) {
      float even[16] = {}, odd[16] = {};
      for (int k = 0; k < 16; ++k) {
        const float low = std::bit_cast<float>(tiles[a][m][k] << 16);
        const float high = std::bit_cast<float>(tiles[a][m][k] & 0xffff0000u);
        for (int n = 0; n < 16; ++n) even[n] += low * weights[0][k][n];
        for (int n = 0; n < 16; ++n) odd[n] += high * weights[1][k][n];
      }
      for (int n = 0; n < 16; ++n)
        tiles[c][m][n] = std::bit_cast<uint32_t>(std::bit_cast<float>(tiles[c][m][n]) + (even[n] + odd[n]));
    }
  }
  static void widen(const char* from, char* to) {
    for (int64_t i = 0; i < kBlock / 2; ++i)
      store_element(DType::BF16, to, i, from[i / 32 * 32 + i % 2 * 16 + i % 32 / 2]);
  }
};

// Calls of the two hooks must be balanced, and the kernel must run between them.
thread_local int depth = 0;
void enter() { ++depth; }
void leave() { --depth; }
void gemm_bf16(const TileArgs& args) {
  if (depth != 1) std::abort();
  amx_gemm<EmulatedTiles>(args);
}
void gemm_bf16_i8(const TileArgs& args) {
  if (depth != 1) std::abort();
  amx_gemm<EmulatedTiles, true>(args);
}

}  // namespace

const TileOps& emulated_amx() {
  static const TileOps ops = [] {
    TileOps t = *tile_ops(Isa::Avx2);
    t.isa = Isa::Amx;
    t.name = "emulated amx";
    t.bf16_arithmetic = true;
    t.chunk_bytes = 20 << 10;
    t.reads_rows = true;
    t.outruns_memory = true;
    t.gemm_bf16 = gemm_bf16;
    t.gemm_bf16_i8 = gemm_bf16_i8;
    t.rows_in_passing = 32;
    t.enter = enter;
    t.leave = leave;
    return t;
  }();
  return ops;
}

}  // namespace tenon::cpu::test
