// The host half of the vocabulary (vocabulary.h says what each name means). A block is a set of fibers on one host
// thread; a Machine, implemented by whoever runs the block, switches between them at barriers and at warp-wide
// operations. Asynchronous copies take effect as late as the rules allow, and their targets are poisoned until then, so
// that a missing wait or barrier shows up in the results.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tenon::device::host {

/// One instruction of a whole warp or warpgroup: called once, with every lane's arguments.
using Together = void (*)(void** arguments, int lanes);

enum class Element { BF16, F16, E4M3 };
struct MmaArguments {
  float* d;
  const uint32_t *a, *b;
  Element element;
};
/// One warpgroup product: d[64, n] of all its lanes, operands as in wgmma_rows or wgmma_columns.
struct WgmmaArguments {
  float* d;
  int n;
  uint64_t a, b;
  bool adds;
  Element element;
  const uint32_t* held = nullptr;  ///< the lane's four registers of a, instead of a descriptor
  bool columns = false;            ///< b's rows are the inner dimension
  bool a_columns = false;          ///< so are a's
};
struct LdmatrixArguments {
  uint32_t* r;
  const void* row;  ///< 16 bytes of shared memory; null for lanes whose address is not used
  int matrices;
  bool transpose;
  int conflicts = 0;  ///< out, in lane 0
};

/// The number that shared_address gives for the start of shared memory.
inline constexpr uint32_t kSharedBase = 1024;

class Machine {
 public:
  int thread = 0;  ///< of the running fiber
  int threads = 0;
  int block[3] = {}, grid[3] = {};
  int cluster_rank = 0;         ///< of the block in its cluster
  Machine** current = nullptr;  ///< the kernel's variable that points to the running machine
  unsigned char* shared = nullptr;

  /// Joins the other lanes of the warp (`warps` = 1) or warpgroup (4) in the instruction `name`; the last to arrive
  /// executes it.
  virtual void together(int warps, const char* name, Together act, void* arguments) = 0;
  virtual void barrier(int id, int count, bool waits) = 0;
  virtual void copy_async(uint32_t dst, const void* src, int bytes, int size) = 0;
  virtual void commit_copies() = 0;
  virtual void wait_copies(int groups_left) = 0;
  virtual void ldmatrix(uint32_t address, LdmatrixArguments arguments) = 0;
  virtual void mma(MmaArguments arguments) = 0;
  virtual void mbarrier_init(uint32_t barrier, int arrivals) = 0;
  virtual void mbarrier_arrive(uint32_t barrier, int bytes) = 0;
  virtual void mbarrier_wait(uint32_t barrier, int parity) = 0;
  virtual void tma_load(uint32_t dst, const void* map, uint32_t barrier, const int (&at)[5], int rank) = 0;
  virtual void tma_store(const void* map, uint32_t src, const int (&at)[5], int rank, bool adds) = 0;
  virtual void tma_store_wait() = 0;
  virtual void counter_wait(const uint32_t* counter, uint32_t value) = 0;
  virtual void counter_set(uint32_t* counter, uint32_t value) = 0;
  virtual void sync_cluster() = 0;
  virtual void griddep_wait() = 0;
  virtual void griddep_launch() = 0;
  virtual void mbarrier_arrive_at(uint32_t barrier, int rank) = 0;
  virtual void store_at(uint32_t address, float value, int rank) = 0;
  virtual void tma_load_shared(uint32_t dst, const void* map, uint32_t barrier, const int (&at)[5], int rank,
                               unsigned blocks) = 0;
  virtual void wgmma(WgmmaArguments arguments) = 0;
  virtual void wgmma_commit() = 0;
  virtual void wgmma_wait(int groups_left) = 0;
  virtual uint16_t f16_bits(float x) = 0;
  virtual uint8_t e4m3_bits(float x) = 0;
  [[noreturn]] virtual void fail(const char* what) = 0;

 protected:
  ~Machine() = default;
};

// Each kernel is its own translation unit and shared object, so each has its own pointer.
static Machine* machine = nullptr;

template <class T>
struct ShuffleArguments {
  T value;
  int from;
  T result;
};
template <class T>
void shuffle_together(void** arguments, int lanes) {
  auto lane = [&](int i) { return static_cast<ShuffleArguments<T>*>(arguments[i]); };
  for (int i = 0; i < lanes; ++i) lane(i)->result = lane(lane(i)->from < lanes ? lane(i)->from : i)->value;
}
template <class T>
T shuffle_from(T value, int from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  ShuffleArguments<T> arguments{value, from, value};
  machine->together(1, "shuffle", shuffle_together<T>, &arguments);
  return arguments.result;
}

struct BallotArguments {
  bool predicate;
  uint32_t result;
};
inline void ballot_together(void** arguments, int lanes) {
  uint32_t bits = 0;
  for (int i = 0; i < lanes; ++i)
    if (static_cast<BallotArguments*>(arguments[i])->predicate) bits |= 1u << i;
  for (int i = 0; i < lanes; ++i) static_cast<BallotArguments*>(arguments[i])->result = bits;
}
inline void nothing_together(void**, int) {}

template <class To, class From>
To bit_cast(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace tenon::device::host

#define DEV inline
#define UNROLL
#define NO_UNROLL
#define UNROLL_8
#define KERNEL(threads_of_block, min_blocks, Params, p)                                                               \
  static void tenon_kernel_body(const Params& p);                                                                     \
  extern "C" [[gnu::visibility("default")]] void tenon_kernel(tenon::device::host::Machine* on, const void* params) { \
    tenon::device::host::machine = on;                                                                                \
    on->current = &tenon::device::host::machine;                                                                      \
    tenon_kernel_body(*static_cast<const Params*>(params));                                                           \
  }                                                                                                                   \
  extern "C" [[gnu::visibility("default")]] const int tenon_kernel_facts[2] = {(threads_of_block),                    \
                                                                               static_cast<int>(sizeof(Params))};     \
  static void tenon_kernel_body([[maybe_unused]] const Params& p)

namespace tenon::device {

DEV int thread_index() { return host::machine->thread; }
DEV int block_threads() { return host::machine->threads; }
DEV int lane() { return thread_index() & 31; }
DEV int warp() { return thread_index() >> 5; }
DEV int warp_uniform() { return warp(); }
DEV int block_x() { return host::machine->block[0]; }
DEV int block_y() { return host::machine->block[1]; }
DEV int block_z() { return host::machine->block[2]; }
DEV int grid_x() { return host::machine->grid[0]; }
DEV int grid_y() { return host::machine->grid[1]; }
DEV int grid_z() { return host::machine->grid[2]; }

DEV unsigned char* shared_memory() { return host::machine->shared; }
DEV uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(p) - host::machine->shared) + host::kSharedBase;
}
DEV void sync_block() { host::machine->barrier(0, block_threads(), true); }
DEV void sync_named(int id, int threads) { host::machine->barrier(id, threads, true); }
DEV void arrive_named(int id, int threads) { host::machine->barrier(id, threads, false); }
DEV void sync_warp() { host::machine->together(1, "sync_warp", host::nothing_together, nullptr); }

template <class T>
DEV T shuffle(T value, int from_lane) {
  return host::shuffle_from(value, from_lane & 31);
}
template <class T>
DEV T shuffle_xor(T value, int mask) {
  return host::shuffle_from(value, lane() ^ mask);
}
template <class T>
DEV T shuffle_up(T value, int delta) {
  return host::shuffle_from(value, lane() >= delta ? lane() - delta : lane());
}
DEV int count_bits(uint32_t bits) { return __builtin_popcount(bits); }
DEV int count_leading_zeros(uint32_t bits) { return bits ? __builtin_clz(bits) : 32; }
DEV uint32_t ballot(bool predicate) {
  host::BallotArguments arguments{predicate, 0};
  host::machine->together(1, "ballot", host::ballot_together, &arguments);
  return arguments.result;
}

// Fibers do not switch in here, and all blocks run in one thread.
template <class T>
DEV T atomic_add(T* p, std::type_identity_t<T> value) {
  const T old = *p;
  *p = old + value;
  return old;
}
template <class T>
DEV T atomic_max(T* p, std::type_identity_t<T> value) {
  const T old = *p;
  *p = old < value ? value : old;
  return old;
}
DEV void fence_device() {}
DEV void trap() { host::machine->fail("trap"); }

DEV float bits_to_float(uint32_t bits) { return host::bit_cast<float>(bits); }
DEV uint32_t float_to_bits(float x) { return host::bit_cast<uint32_t>(x); }
DEV uint16_t float_to_bf16(float x) {
  const uint32_t u = float_to_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
DEV uint16_t float_to_f16(float x) { return host::machine->f16_bits(x); }
DEV float f16_to_float(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, rest = (bits & 0x7fffu) << 13;
  if (rest >= 0x0f800000u) return bits_to_float(sign | rest | 0x7f800000u);
  return bits_to_float(sign | float_to_bits(bits_to_float(rest) * 0x1p112f));
}
DEV uint8_t float_to_e4m3(float x) { return host::machine->e4m3_bits(x); }
DEV float e4m3_to_float(uint8_t bits) {
  const uint32_t sign = (bits & 0x80u) << 24, rest = (bits & 0x7fu) << 20;
  if ((bits & 0x7f) == 0x7f) return bits_to_float(0x7fffffffu);
  return bits_to_float(sign | float_to_bits(bits_to_float(rest) * 0x1p120f));
}
DEV uint32_t floats_to_bf16(float low, float high) {
  return float_to_bf16(low) | static_cast<uint32_t>(float_to_bf16(high)) << 16;
}
DEV uint32_t floats_to_f16(float low, float high) {
  return float_to_f16(low) | static_cast<uint32_t>(float_to_f16(high)) << 16;
}
DEV uint16_t floats_to_e4m3(float low, float high) {
  return static_cast<uint16_t>(float_to_e4m3(low) | float_to_e4m3(high) << 8);
}

DEV float divide(float a, float b) { return a / b; }
DEV float round_up(float x) { return std::ceil(x); }
DEV void assume(bool fact) {
  if (!fact) __builtin_unreachable();
}
DEV int anew(int x) { return x; }

DEV float exp2_approximate(float x) { return std::exp2(x); }
DEV float log2_approximate(float x) { return std::log2(x); }
DEV float reciprocal_approximate(float x) { return 1.0f / x; }
DEV float fused_multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
DEV float rounded_product(float a, float b) { return a * b; }
DEV float max_number(float a, float b) { return b != b || a > b ? a : b; }
DEV float magnitude(float x) { return bits_to_float(float_to_bits(x) & 0x7fffffffu); }
DEV float max_or_nan(float a, float b) { return a != a || a > b ? a : b; }

DEV void cp_async16(uint32_t dst, const void* src, int bytes) { host::machine->copy_async(dst, src, bytes, 16); }
DEV void cp_async8(uint32_t dst, const void* src, int bytes) { host::machine->copy_async(dst, src, bytes, 8); }
DEV void cp_async4(uint32_t dst, const void* src, int bytes) { host::machine->copy_async(dst, src, bytes, 4); }
DEV void cp_async_commit() { host::machine->commit_copies(); }
template <int kLeft>
DEV void cp_async_wait() {
  host::machine->wait_copies(kLeft);
}

DEV void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) { host::machine->ldmatrix(address, {r, nullptr, 4, false}); }
DEV void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
  host::machine->ldmatrix(address, {r, nullptr, 4, true});
}
DEV void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address) {
  host::machine->ldmatrix(address, {r, nullptr, 2, true});
}
#define TENON_MMA(name, T)                                                          \
  DEV void mma_##name(float(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2]) { \
    host::machine->mma({d, a, b, host::Element::T});                                \
  }
TENON_MMA(bf16, BF16)
TENON_MMA(f16, F16)
TENON_MMA(e4m3, E4M3)

DEV void prefetch_l2(const void*) {}
template <int kBytes>
DEV void copy_past_l1(void* to, const void* from) {
  std::memcpy(to, from, kBytes);
}
DEV void griddep_wait() { host::machine->griddep_wait(); }
DEV void griddep_launch() { host::machine->griddep_launch(); }

// ---- sm_90.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};
template <int kCount>
DEV void registers_decrease() {}
template <int kCount>
DEV void registers_increase() {}

DEV void mbarrier_init(uint32_t barrier, int arrivals) { host::machine->mbarrier_init(barrier, arrivals); }
DEV void mbarrier_init_fence() {}
DEV void mbarrier_arrive(uint32_t barrier) { host::machine->mbarrier_arrive(barrier, 0); }
DEV void mbarrier_arrive_expecting(uint32_t barrier, int bytes) { host::machine->mbarrier_arrive(barrier, bytes); }
DEV void mbarrier_wait(uint32_t barrier, int parity) { host::machine->mbarrier_wait(barrier, parity); }
/// 2 to 5 coordinates.
template <class... At>
DEV void tma_load(uint32_t dst, const TensorMap& map, uint32_t barrier, At... at) {
  const int coordinates[5] = {at...};
  host::machine->tma_load(dst, &map, barrier, coordinates, sizeof...(At));
}
DEV void tma_store(const TensorMap& map, uint32_t src, int x, int y, int z) {
  host::machine->tma_store(&map, src, {x, y, z}, 3, false);
}
DEV void tma_add(const TensorMap& map, uint32_t src, int x, int y, int z) {
  host::machine->tma_store(&map, src, {x, y, z}, 3, true);
}
DEV void tma_store_wait() { host::machine->tma_store_wait(); }
DEV void tma_store_finish() { host::machine->tma_store_wait(); }
DEV void counter_wait(const uint32_t* counter, uint32_t value) { host::machine->counter_wait(counter, value); }
DEV void counter_set(uint32_t* counter, uint32_t value) { host::machine->counter_set(counter, value); }
DEV int cluster_rank() { return host::machine->cluster_rank; }
DEV void sync_cluster() { host::machine->sync_cluster(); }
DEV void mbarrier_arrive_at(uint32_t barrier, int rank) { host::machine->mbarrier_arrive_at(barrier, rank); }
DEV void store_at(uint32_t address, float value, int rank) { host::machine->store_at(address, value, rank); }
DEV void store_at(uint32_t address, const float (&value)[4], int rank) {
  for (uint32_t i = 0; i < 4; ++i) store_at(address + 4 * i, value[i], rank);
}
template <class... At>
DEV void tma_load_shared(uint32_t dst, const TensorMap& map, uint32_t barrier, unsigned blocks, At... at) {
  const int coordinates[5] = {at...};
  host::machine->tma_load_shared(dst, &map, barrier, coordinates, sizeof...(At), blocks);
}
DEV void fence_async() {}

DEV void wgmma_fence() {}
DEV void wgmma_commit() { host::machine->wgmma_commit(); }
template <int kLeft>
DEV void wgmma_wait() {
  host::machine->wgmma_wait(kLeft);
}
template <int kFragments>
DEV void wgmma_settle(float (&)[kFragments][4]) {}
#define TENON_WGMMA(name, T)                                                           \
  template <int kFragments>                                                            \
  DEV void wgmma_##name(float(&d)[kFragments][4], uint64_t a, uint64_t b, bool adds) { \
    host::machine->wgmma({d[0], 8 * kFragments, a, b, adds, host::Element::T});        \
  }
#define TENON_HELD(name, T)                                                                            \
  template <bool kColumns, int kFragments>                                                             \
  DEV void wgmma_held_##name(float(&d)[kFragments][4], const uint32_t(&a)[4], uint64_t b, bool adds) { \
    host::machine->wgmma({d[0], 8 * kFragments, 0, b, adds, host::Element::T, a, kColumns});           \
  }
TENON_WGMMA(bf16, BF16)
TENON_WGMMA(f16, F16)
TENON_WGMMA(e4m3, E4M3)
TENON_HELD(bf16, BF16)
TENON_HELD(f16, F16)

}  // namespace tenon::device
