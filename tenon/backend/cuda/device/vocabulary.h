// The vocabulary of kernels: everything of the machine that a kernel body may use. This half is for the GPU, and the
// only place with inline PTX; vocabulary_host.h defines every name again for a block of threads on the host CPU.
//
// Warps stay converged: shuffles, votes, ldmatrix and mma are called by all lanes of a warp together. Shared-memory
// addresses are 32-bit numbers (shared_address), so that a loop advances them with integer additions.
#pragma once
#ifdef TENON_DEVICE_ON_HOST
#include "tenon/backend/cuda/device/vocabulary_host.h"
#else

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;

/// A function that kernels call.
#define DEV __device__ __forceinline__
/// Unrolls the following loop.
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define UNROLL_8 _Pragma("unroll 8")
/// The kernel of a translation unit: KERNEL(256, 2, Params, p) { body } has 256 threads per block, at least two
/// resident blocks per multiprocessor, and the argument `const Params& p`.
#define KERNEL(threads, min_blocks, Params, p) \
  extern "C" __global__ void __launch_bounds__(threads, min_blocks) tenon_kernel(const __grid_constant__ Params p)

namespace tenon::device {

// ---- Thread position.
DEV int thread_index() { return threadIdx.x; }
DEV int block_threads() { return blockDim.x; }
DEV int lane() { return threadIdx.x & 31; }
DEV int warp() { return threadIdx.x >> 5; }
DEV int block_x() { return blockIdx.x; }
DEV int block_y() { return blockIdx.y; }
DEV int block_z() { return blockIdx.z; }
DEV int grid_x() { return gridDim.x; }
DEV int grid_y() { return gridDim.y; }
DEV int grid_z() { return gridDim.z; }
/// warp(), which the compiler knows to be uniform across the warp.
DEV int warp_uniform() { return __shfl_sync(~0u, threadIdx.x >> 5, 0); }

// ---- Shared memory and barriers.
/// The block's dynamic shared memory, 1024-byte aligned.
DEV unsigned char* shared_memory() {
  extern __shared__ __align__(1024) unsigned char tenon_shared[];
  return tenon_shared;
}
DEV uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
/// Synchronizes all threads of the block; memory writes before it are visible to all after it.
DEV void sync_block() { __syncthreads(); }
/// Synchronizes `threads` of the block (a multiple of 32) at barrier `id`, 1 to 15.
DEV void sync_named(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
/// Arrives at barrier `id` without waiting.
DEV void arrive_named(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEV void sync_warp() { __syncwarp(); }

// ---- Between the lanes of a warp. T has 4 or 8 bytes.
template <class T>
DEV T shuffle(T value, int from_lane) {
  return __shfl_sync(~0u, value, from_lane);
}
template <class T>
DEV T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(~0u, value, mask);
}
/// The value of lane - delta, or the lane's own value if there is no such lane.
template <class T>
DEV T shuffle_up(T value, int delta) {
  return __shfl_up_sync(~0u, value, delta);
}
/// One bit per lane.
DEV uint32_t ballot(bool predicate) { return __ballot_sync(~0u, predicate); }
DEV int count_bits(uint32_t bits) { return __popc(bits); }
DEV int count_leading_zeros(uint32_t bits) { return __clz(bits); }

// ---- Atomics on global or shared memory, and fences.
DEV uint32_t atomic_add(uint32_t* p, uint32_t value) { return atomicAdd(p, value); }
DEV int32_t atomic_add(int32_t* p, int32_t value) { return atomicAdd(p, value); }
DEV uint32_t atomic_max(uint32_t* p, uint32_t value) { return atomicMax(p, value); }
DEV int32_t atomic_max(int32_t* p, int32_t value) { return atomicMax(p, value); }
/// Orders this thread's earlier writes before its later ones for observers anywhere on the device.
DEV void fence_device() { __threadfence(); }
/// Ends the kernel with an error.
DEV void trap() { __trap(); }

// ---- Numbers. Conversions round to nearest even.
DEV float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
DEV uint32_t float_to_bits(float x) { return __float_as_uint(x); }
DEV uint16_t float_to_bf16(float x) {
  uint16_t y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
DEV uint16_t float_to_f16(float x) {
  uint16_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
DEV float f16_to_float(uint16_t bits) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
}
/// Converts two at once, `low` into the low half.
DEV uint32_t floats_to_bf16(float low, float high) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
DEV uint32_t floats_to_f16(float low, float high) {
  uint32_t y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
/// Saturates at 448; NaN stays NaN.
DEV uint16_t floats_to_e4m3(float low, float high) {
  uint16_t y;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
  return y;
}
DEV uint8_t float_to_e4m3(float x) { return static_cast<uint8_t>(floats_to_e4m3(x, 0.0f)); }
DEV float e4m3_to_float(uint8_t bits) {
  uint32_t two;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(static_cast<uint16_t>(bits)));
  return f16_to_float(static_cast<uint16_t>(two));
}

/// a / b to 2 ulp, for b up to 2^126.
DEV float divide(float a, float b) { return __fdividef(a, b); }
/// Rounds up to a whole number.
DEV float round_up(float x) { return ceilf(x); }
/// A fact that the compiler may rely on.
DEV void assume(bool fact) { __builtin_assume(fact); }
/// x, opaque to the compiler, so that values derived from it are recomputed instead of kept in registers.
DEV int anew(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// ---- Fast maths: one or two instructions of the special function unit, a few ulp; subnormal results are zero.
#define TENON_APPROXIMATE(name, instruction)                       \
  DEV float name(float x) {                                        \
    float y;                                                       \
    asm(instruction ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); \
    return y;                                                      \
  }
TENON_APPROXIMATE(exp2_approximate, "ex2")
TENON_APPROXIMATE(log2_approximate, "lg2")
TENON_APPROXIMATE(reciprocal_approximate, "rcp")
DEV float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
/// a * b, never merged with a following sum.
DEV float rounded_product(float a, float b) { return __fmul_rn(a, b); }
/// The larger of the two; ignores a NaN if the other is a number.
DEV float max_number(float a, float b) { return fmaxf(a, b); }
DEV float magnitude(float x) { return fabsf(x); }
/// The larger of the two, or NaN if either is.
DEV float max_or_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// ---- Asynchronous copies from global to shared memory (sm_80 and later). Both addresses are aligned to the size.
/// Reads `bytes` of 16 and zero-fills the rest of the 16; with 0 the source is not accessed. Bypasses L1.
DEV void cp_async16(uint32_t dst, const void* src, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
DEV void cp_async8(uint32_t dst, const void* src, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
DEV void cp_async4(uint32_t dst, const void* src, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
/// Makes a group of this thread's copies since the last commit.
DEV void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most kLeft of this thread's groups are in flight. Other threads see the data after a barrier.
template <int kLeft>
DEV void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// ---- Matrix fragments. Lanes 8i .. 8i+7 supply the addresses of the 8 rows (16 bytes each, 16-byte aligned) of matrix
// i; lane l gets bytes 4(l % 4) .. +3 of row l / 4 of each (trans: elements 2(l % 4), +1 of column l / 4, 16-bit
// elements).
#define TENON_LDMATRIX_X4(name, kind)                                                       \
  DEV void name(uint32_t(&r)[4], uint32_t address) {                                        \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" kind ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                           \
                 : "r"(address)                                                             \
                 : "memory");                                                               \
  }
TENON_LDMATRIX_X4(ldmatrix_x4, "")
TENON_LDMATRIX_X4(ldmatrix_x4_trans, ".trans")
DEV void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}

// ---- d[16,8] += a[16,k] b[k,8], accumulated in f32. With g = lane / 4, t = lane % 4 and 4-byte words of a row
// numbered from 0: a = rows g, g+8, g, g+8 at words t, t, t+4, t+4; b = column g at words t, t+4; d = (g, 2t), (g,
// 2t+1), (g+8, 2t), (g+8, 2t+1). k is 16 for 16-bit elements and 32 for E4M3 (native on sm_89; emulated, slowly, on
// sm_90).
#define TENON_MMA(name, k, types)                                                       \
  DEV void mma_##name(float(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2]) {     \
    asm volatile("mma.sync.aligned.m16n8" k ".row.col.f32." types                       \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));   \
  }
TENON_MMA(bf16, "k16", "bf16.bf16")
TENON_MMA(f16, "k16", "f16.f16")
TENON_MMA(e4m3, "k32", "e4m3.e4m3")

// ---- Hints, and neighbouring kernels in the stream.
DEV void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
/// Loads kBytes (1, 2, 4, 8 or a multiple of 16, aligned alike) from global memory into registers, bypassing L1.
template <int kBytes>
DEV void copy_past_l1(void* to, const void* from) {
  if constexpr (kBytes % 16 == 0) {
    uint32_t* r = static_cast<uint32_t*>(to);
    UNROLL for (int i = 0; i < kBytes / 4;
                i += 4) asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r[i]), "=r"(r[i + 1]),
                                     "=r"(r[i + 2]), "=r"(r[i + 3]) : "l"(static_cast<const char*>(from) + 4 * i));
  } else if constexpr (kBytes == 8) {
    uint32_t* r = static_cast<uint32_t*>(to);
    asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "l"(from));
  } else if constexpr (kBytes == 4) {
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(*static_cast<uint32_t*>(to)) : "l"(from));
  } else if constexpr (kBytes == 2) {
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(*static_cast<uint16_t*>(to)) : "l"(from));
  } else {
    static_assert(kBytes == 1);
    uint32_t wide;
    asm volatile("ld.global.cg.u8 %0, [%1];" : "=r"(wide) : "l"(from));
    *static_cast<uint8_t*>(to) = static_cast<uint8_t>(wide);
  }
}
/// Waits for the previous kernel, whose end this one may overlap (CallShape::overlaps).
DEV void griddep_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel start.
DEV void griddep_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace tenon::device
#include "tenon/backend/cuda/device/vocabulary_sm90.h"
#endif

namespace tenon::device {

// ---- Descriptors of wgmma's operands in shared memory, the same on the GPU and on the host: 128-byte rows as TMA
// stores them with the 128-byte swizzle, from a multiple of 1024 bytes on.
/// Rows that are the product's inner dimension (MN-major). The next 64 columns are `block_bytes` (a multiple of 1024)
/// further.
DEV uint64_t wgmma_columns(uint32_t address, int block_bytes) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | static_cast<uint64_t>(block_bytes >> 4) << 16 |
         ((address & 0x3ffff) >> 4);
}
/// Rows along the inner dimension, as most products have them; 32 bytes further along it is address + 32.
DEV uint64_t wgmma_rows(uint32_t address) { return wgmma_columns(address, 16); }

}  // namespace tenon::device
