// The vocabulary of sm_90: TMA copies of tensor boxes, mbarriers that count threads and bytes, and matrix products that
// a warpgroup (4 warps) starts and waits for. Part of vocabulary.h.
#pragma once

namespace tenon::device {

/// A tensor map (TMA descriptor), encoded by the host (Device::encode). A member of a kernel's parameters.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

/// Sets the registers per thread of this warpgroup, a multiple of 8. All warps of the warpgroup call it.
template <int kCount>
DEV void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
DEV void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// ---- mbarriers: 8 bytes of shared memory, with phases 0, 1, 0, ... A phase ends when the barrier's number of threads
// have arrived and all announced bytes have been copied.
DEV void mbarrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Call after the inits, before other threads use the barriers (a block barrier follows).
DEV void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and announces bytes that copies will deliver in this phase.
DEV void mbarrier_arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Waits for the end of the phase with this parity; returns at once if the barrier is already in the next phase.
DEV void mbarrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- TMA copies of a box of a tensor to shared memory, innermost coordinate first; zero outside the tensor. Their
// bytes, always of the whole box, are counted at `barrier`. One thread issues a copy.
#define TENON_TMA_LOAD(rank, kind, box, mask, ...)                                                             \
  if constexpr (kRank == rank)                                                                                 \
  asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" kind \
               " [%0], [%1, {" box "}], [%2]" mask ";" ::"r"(dst),                                             \
               "l"(&map), "r"(barrier), __VA_ARGS__                                                            \
               : "memory")
/// 2 to 5 coordinates.
template <class... At>
DEV void tma_load(uint32_t dst, const TensorMap& map, uint32_t barrier, At... coordinates) {
  constexpr int kRank = sizeof...(At);
  static_assert(2 <= kRank && kRank <= 5);
  const int at[kRank] = {coordinates...};
  TENON_TMA_LOAD(2, "", "%3, %4", "", "r"(at[0]), "r"(at[1]));
  TENON_TMA_LOAD(3, "", "%3, %4, %5", "", "r"(at[0]), "r"(at[1]), "r"(at[2]));
  TENON_TMA_LOAD(4, "", "%3, %4, %5, %6", "", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
  TENON_TMA_LOAD(5, "", "%3, %4, %5, %6, %7", "", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]));
}

// ---- TMA copies of a box from shared memory to a tensor; elements outside of it are not written. The threads that
// wrote the box call fence_async() before. One thread issues a copy and, before the box may change and before it ends,
// waits.
DEV void tma_store(const TensorMap& map, uint32_t src, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(src), "r"(x), "r"(y), "r"(z)
      : "memory");
}
/// Adds a box of f32 to the tensor's elements.
DEV void tma_add(const TensorMap& map, uint32_t src, int x, int y, int z) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(src), "r"(x), "r"(y), "r"(z)
      : "memory");
}
/// Waits until all boxes that this thread stores or adds were read.
DEV void tma_store_wait() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/// Waits until they were written.
DEV void tma_store_finish() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---- Turns of blocks that all run at some time: a counter in memory says whose turn it is. What a thread wrote before
// it sets the counter, boxes included, is there for a thread that has waited for it.
DEV void counter_wait(const uint32_t* counter, uint32_t value) {
  uint32_t now;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  while (now != value);
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
DEV void counter_set(uint32_t* counter, uint32_t value) {
  asm volatile("fence.proxy.async.global;\nst.release.gpu.global.u32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}

// ---- Clusters: neighbouring blocks along x that run at the same time and can access each other's shared memory.
DEV int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// Waits for all threads of the cluster's blocks. Needed before other blocks use a block's barriers, and at the end.
DEV void sync_cluster() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }
/// Arrives at the barrier with this address in block `rank` of the cluster. Orders only what the block's own threads
/// see: a release at cluster scope is a fence, which takes longer than a K tile of a product.
DEV void mbarrier_arrive_at(uint32_t barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
/// Stores to this address in the shared memory of block `rank` of the cluster.
DEV void store_at(uint32_t address, float value, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nst.shared::cluster.f32 [there], %2;\n}\n" ::"r"(
          address),
      "r"(rank), "f"(value)
      : "memory");
}
DEV void store_at(uint32_t address, const float (&value)[4], int rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}\n" ::"r"(address),
      "r"(rank), "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3])
      : "memory");
}
/// A multicast copy to the same address in each block of the cluster whose bit is set in `blocks`; its bytes are
/// counted at the barrier with the same address there.
template <class... At>
DEV void tma_load_shared(uint32_t dst, const TensorMap& map, uint32_t barrier, unsigned blocks, At... coordinates) {
  constexpr int kRank = sizeof...(At);
  static_assert(2 <= kRank && kRank <= 5);
  const int at[kRank] = {coordinates...};
  const uint16_t to = static_cast<uint16_t>(blocks);
  TENON_TMA_LOAD(2, ".multicast::cluster", "%3, %4", ", %5", "r"(at[0]), "r"(at[1]), "h"(to));
  TENON_TMA_LOAD(3, ".multicast::cluster", "%3, %4, %5", ", %6", "r"(at[0]), "r"(at[1]), "r"(at[2]), "h"(to));
  TENON_TMA_LOAD(4, ".multicast::cluster", "%3, %4, %5, %6", ", %7", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
                 "h"(to));
  TENON_TMA_LOAD(5, ".multicast::cluster", "%3, %4, %5, %6, %7", ", %8", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
                 "r"(at[4]), "h"(to));
}

/// Makes this thread's earlier writes to shared memory visible to TMA copies and wgmma that start later.
DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Warpgroup matrix products, d[64, N] (+)= a[64, k] b[N, k], k = 32 bytes, accumulated in f32: d[j] are the
// registers of columns 8j .. 8j+7, in mma's layout, for 16 rows per warp. Operands are in shared memory as TMA stores
// 128-byte rows with the 128-byte swizzle, starting at a multiple of 1024 bytes; 32 bytes further along K is address +
// 32.
/// Call before the first product, and after anything other than products has accessed the sums or operands.
DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Makes a group of the products since the last commit.
DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most kLeft groups are in flight.
template <int kLeft>
DEV void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
/// Keeps the compiler from moving uses of the sums above the preceding wait.
template <int kFragments>
DEV void wgmma_settle(float (&d)[kFragments][4]) {
  UNROLL for (int i = 0; i < kFragments;
              ++i) asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

#define TENON_SUMS_4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define TENON_SUMS_16(i) TENON_SUMS_4(i), TENON_SUMS_4(i + 1), TENON_SUMS_4(i + 2), TENON_SUMS_4(i + 3)
// The first n registers, and the sums in them.
#define TENON_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TENON_REGISTERS_32 \
  TENON_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TENON_REGISTERS_48 \
  TENON_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TENON_REGISTERS_64 \
  TENON_REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TENON_REGISTERS_80 \
  TENON_REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define TENON_REGISTERS_96 \
  TENON_REGISTERS_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TENON_REGISTERS_112 \
  TENON_REGISTERS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define TENON_REGISTERS_128                                                                      \
  TENON_REGISTERS_112                                                                            \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"
#define TENON_FIRST_16 TENON_SUMS_16(0)
#define TENON_FIRST_32 TENON_FIRST_16, TENON_SUMS_16(4)
#define TENON_FIRST_48 TENON_FIRST_32, TENON_SUMS_16(8)
#define TENON_FIRST_64 TENON_FIRST_48, TENON_SUMS_16(12)
#define TENON_FIRST_80 TENON_FIRST_64, TENON_SUMS_16(16)
#define TENON_FIRST_96 TENON_FIRST_80, TENON_SUMS_16(20)
#define TENON_FIRST_112 TENON_FIRST_96, TENON_SUMS_16(24)
#define TENON_FIRST_128 TENON_FIRST_112, TENON_SUMS_16(28)
// Operands a, b and whether to accumulate follow the sums, numbered from their count on.
#define TENON_WGMMA(name, shape, fragments, registers, a_at, b_at, adds_at, tail, ...)                             \
  DEV void name(float(&d)[fragments][4], uint64_t a, uint64_t b, bool adds) {                                      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" adds_at                                                      \
                 ", 0;\n"                                                                                          \
                 "wgmma.mma_async.sync.aligned." shape " {" registers "}, %" a_at ", %" b_at ", p, " tail ";\n}\n" \
                 : __VA_ARGS__                                                                                     \
                 : "l"(a), "l"(b), "r"(static_cast<int>(adds)));                                                   \
  }
#define TENON_WGMMA_OF(type, name, k, tail)                                                                           \
  TENON_WGMMA(wgmma_##name, "m64n32" k ".f32." type, 4, TENON_REGISTERS_16, "16", "17", "18", tail, TENON_FIRST_16)   \
  TENON_WGMMA(wgmma_##name, "m64n64" k ".f32." type, 8, TENON_REGISTERS_32, "32", "33", "34", tail, TENON_FIRST_32)   \
  TENON_WGMMA(wgmma_##name, "m64n96" k ".f32." type, 12, TENON_REGISTERS_48, "48", "49", "50", tail, TENON_FIRST_48)  \
  TENON_WGMMA(wgmma_##name, "m64n128" k ".f32." type, 16, TENON_REGISTERS_64, "64", "65", "66", tail, TENON_FIRST_64) \
  TENON_WGMMA(wgmma_##name, "m64n160" k ".f32." type, 20, TENON_REGISTERS_80, "80", "81", "82", tail, TENON_FIRST_80) \
  TENON_WGMMA(wgmma_##name, "m64n192" k ".f32." type, 24, TENON_REGISTERS_96, "96", "97", "98", tail, TENON_FIRST_96) \
  TENON_WGMMA(wgmma_##name, "m64n224" k ".f32." type, 28, TENON_REGISTERS_112, "112", "113", "114", tail,             \
              TENON_FIRST_112)                                                                                        \
  TENON_WGMMA(wgmma_##name, "m64n256" k ".f32." type, 32, TENON_REGISTERS_128, "128", "129", "130", tail,             \
              TENON_FIRST_128)
TENON_WGMMA_OF("bf16.bf16", bf16, "k16", "1, 1, 0, 0")
TENON_WGMMA_OF("f16.f16", f16, "k16", "1, 1, 0, 0")
TENON_WGMMA_OF("e4m3.e4m3", e4m3, "k32", "1, 1")

}  // namespace tenon::device
