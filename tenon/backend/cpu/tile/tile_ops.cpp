#include "tenon/backend/cpu/tile/tile_ops.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "tenon/backend/cpu/tile/isa/tables.h"
#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon::cpu {
namespace {

constexpr std::array<std::string_view, kIsaCount> kNames = {"avx2",       "avxvnni",    "avx512",
                                                            "avx512vnni", "avx512bf16", "amx"};

// Linux grants the tile registers to a process on request (arch_prctl ARCH_REQ_XCOMP_PERM, feature 18).
bool request_amx() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool has = (d >> 22 & 1) && (d >> 24 & 1);  // AMX-BF16, AMX-TILE
#if defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return has && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool has_f16c() {  // clang's __builtin_cpu_supports has no name for it
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

bool has_avx_vnni() {  // not every compiler's __builtin_cpu_supports has a name for it
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

bool supported(Isa isa) {
  switch (isa) {
    case Isa::Avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Isa::AvxVnni:
      return supported(Isa::Avx2) && has_avx_vnni();
    case Isa::Avx512:
      return supported(Isa::Avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    case Isa::Avx512Vnni:
      return supported(Isa::Avx512) && __builtin_cpu_supports("avx512vnni");
    case Isa::Avx512Bf16:
      return supported(Isa::Avx512Vnni) && __builtin_cpu_supports("avx512bf16");
    case Isa::Amx:
      return supported(Isa::Avx512Bf16) && request_amx();
  }
  return false;
}

// Intel's processors start a product of bf16 pairs every second cycle, four multiply-adds of f32 in that time (Sapphire
// Rapids, 2026-11-28): those widen instead. They are told by name, since a measurement could differ between runs.
bool slow_bf16_pairs() { return __builtin_cpu_is("intel"); }

// Panels one after another were measured on AMD's processors only; Intel's read several faster.
TileOps make_avx2_ops() {
  TileOps ops = kAvx2Ops;
  ops.one_stream = !__builtin_cpu_is("intel");
  return ops;
}

TileOps make_avx_vnni_ops() {
  TileOps ops = make_avx2_ops();
  ops.isa = Isa::AvxVnni;
  ops.name = "avxvnni";
  ops.gemm_i8 = avx_vnni_gemm_i8;
  return ops;
}

TileOps make_vnni_ops() {
  TileOps ops = kAvx512Ops;
  ops.isa = Isa::Avx512Vnni;
  ops.name = "avx512vnni";
  ops.bf16_arithmetic = supported(Isa::Avx512Bf16);  // in f32's time and half of its memory
  ops.one_stream = false;
  ops.gemm_i8 = vnni_gemm_i8;
  return ops;
}

TileOps make_amx_ops() {
  TileOps ops = kAvx512Bf16Ops;
  ops.isa = Isa::Amx;
  ops.name = "amx";
  ops.chunk_bytes = kAmxChunk;
  ops.reads_rows = true;
  ops.outruns_memory = true;
  ops.gemm_bf16 = amx_gemm_bf16;
  ops.gemm_bf16_i8 = amx_gemm_bf16_i8;
  ops.rows_in_passing = 32;
  ops.enter = amx_enter;
  ops.leave = amx_leave;
  return ops;
}

// The best instruction set: the named one, or the best one that this machine has.
Isa wanted() {
  const std::string name = option(Option::CpuIsa);
  if (name.empty()) return tile_ops(Isa::Amx) || !slow_bf16_pairs() ? Isa::Amx : Isa::Avx512Vnni;
  for (int i = 0; i < kIsaCount; ++i)
    if (name == kNames[i]) return static_cast<Isa>(i);
  throw Error(ErrorKind::Usage, "TENON_CPU_ISA",
              "expected amx, avx512bf16, avx512vnni, avx512, avxvnni or avx2, got \"" + name + "\"");
}

}  // namespace

const TileOps* tile_ops(Isa isa) {
  static const std::array<bool, kIsaCount> can = [] {
    std::array<bool, kIsaCount> result{};
    for (int i = 0; i < kIsaCount; ++i) result[i] = supported(static_cast<Isa>(i));
    return result;
  }();
  static const TileOps avx2_ops = make_avx2_ops(), avx_vnni_ops = make_avx_vnni_ops(), vnni_ops = make_vnni_ops(),
                       amx_ops = make_amx_ops();
  if (!can[static_cast<int>(isa)]) return nullptr;
  switch (isa) {
    case Isa::Avx2:
      return &avx2_ops;
    case Isa::AvxVnni:
      return &avx_vnni_ops;
    case Isa::Avx512:
      return &kAvx512Ops;
    case Isa::Avx512Vnni:
      return &vnni_ops;
    case Isa::Avx512Bf16:
      return &kAvx512Bf16Ops;
    case Isa::Amx:
      return &amx_ops;
  }
  return nullptr;
}

const TileOps& tile_ops() {
  static const TileOps* best = [] {
    const TileOps* found = nullptr;
    for (int i = 0; i <= static_cast<int>(wanted()); ++i)
      if (const TileOps* ops = tile_ops(static_cast<Isa>(i))) found = ops;
    TENON_CHECK(Device, found != nullptr, "cpu") << "the processor lacks AVX2, FMA or F16C";
    return found;
  }();
  return *best;
}

int64_t l2_bytes() {
  static const int64_t bytes = [] {
    const long found = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return found > 0 ? int64_t{found} : int64_t{1} << 20;
  }();
  return bytes;
}

}  // namespace tenon::cpu
