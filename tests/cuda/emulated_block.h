// Emulates one block of threads on the host, each a fiber, switched where threads of a GPU synchronise. Asynchronous
// copies happen at the wait that covers them and not before; until then their targets hold NaNs, as all of shared
// memory does initially.
#pragma once
#include <boost/context/detail/fcontext.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/device/vocabulary_host.h"
#include "tests/cuda/emulated_tensor_core.h"

namespace tenon::cuda::test {

using device::host::Machine;
using KernelEntry = void (*)(Machine*, const void* params);

/// Counts over all blocks that a Block ran.
struct BlockStatistics {
  int64_t ldmatrix = 0;        ///< 8x8 matrices read by ldmatrix
  int64_t bank_conflicts = 0;  ///< passes through shared memory beyond one for each of them
  int64_t mma = 0;
};

class Block final : public Machine {
 public:
  Block();
  ~Block();
  /// Runs all threads of a cluster's blocks to their end, or of a whole grid; the first block is block `at`. Threads
  /// that wait for the preceding kernel do so until `in_front`, if given, was called, which happens once no thread can
  /// continue otherwise. Throws std::string: what went wrong and where, without a kernel name.
  static void run(std::span<Block* const> cluster, KernelEntry kernel, const void* params, const CallShape& shape,
                  const int64_t (&at)[3], bool backwards, const std::function<void()>& in_front);
  BlockStatistics statistics;

  void together(int warps, const char* name, device::host::Together act, void* arguments) override;
  void barrier(int id, int count, bool waits) override;
  void copy_async(uint32_t dst, const void* src, int bytes, int size) override;
  void commit_copies() override;
  void wait_copies(int groups_left) override;
  void ldmatrix(uint32_t address, device::host::LdmatrixArguments arguments) override;
  void mma(device::host::MmaArguments arguments) override;
  void mbarrier_init(uint32_t barrier, int arrivals) override;
  void mbarrier_arrive(uint32_t barrier, int bytes) override;
  void mbarrier_wait(uint32_t barrier, int parity) override;
  void tma_load(uint32_t dst, const void* map, uint32_t barrier, const int (&at)[5], int rank) override;
  void tma_store(const void* map, uint32_t src, const int (&at)[5], int rank, bool adds) override;
  void tma_store_wait() override;
  void counter_wait(const uint32_t* counter, uint32_t value) override;
  void counter_set(uint32_t* counter, uint32_t value) override;
  void sync_cluster() override;
  void griddep_wait() override;
  void griddep_launch() override;
  void mbarrier_arrive_at(uint32_t barrier, int rank) override;
  void store_at(uint32_t address, float value, int rank) override;
  void tma_load_shared(uint32_t dst, const void* map, uint32_t barrier, const int (&at)[5], int rank,
                       unsigned blocks) override;
  void wgmma(device::host::WgmmaArguments arguments) override;
  void wgmma_commit() override;
  void wgmma_wait(int groups_left) override;
  uint16_t f16_bits(float x) override;
  uint8_t e4m3_bits(float x) override;
  [[noreturn]] void fail(const char* what) override;

 private:
  struct Copy {
    unsigned char* dst;
    const void* src;
    int bytes, size;
  };
  struct Fiber {
    boost::context::detail::fcontext_t context = nullptr;
    bool done = false;
    const char* waits_for = "";
    std::vector<Copy> copies;
    std::vector<size_t> groups;  ///< ends of the committed groups in `copies`
  };
  // Lanes that have reached the same instruction of a warp or warpgroup.
  struct Meeting {
    int came = 0;
    const char* name = nullptr;
    device::host::Together act = nullptr;
    void* arguments[128] = {};
  };
  struct Barrier {
    int count = 0, came = 0;
    std::vector<int> waiting;
  };

  // A barrier of the vocabulary's sm_90 part; its 8 bytes of shared memory are unused here.
  struct PhaseBarrier {
    int expected = 0, missing = 0;
    int64_t bytes = 0;  ///< announced but not arrived
    int phase = 0;
  };
  struct BoxCopy {
    TensorBox box;
    int at[5];
    uint32_t dst, barrier;
  };
  struct BoxStore {
    TensorBox box;
    int at[5];
    uint32_t src;
    int by;  // the thread that issued it
    bool adds;
  };

  static void fiber_main(boost::context::detail::transfer_t from);
  unsigned char* stack_of(int t) const { return stacks_ + static_cast<size_t>(t) * kStackBytes; }
  void prepare(const CallShape& shape);
  void start(KernelEntry kernel, const void* params, const CallShape& shape, const int64_t (&at)[3]);
  bool run_ready();
  void finish();
  Block& peer(int rank);
  void check_box(const TensorBox& box, const int (&at)[5], int rank, const std::string& by);
  void add_box(uint32_t dst, const void* map, uint32_t barrier, const int (&at)[5], int rank);
  void resume(int t);
  void suspend(const char* waits_for);
  [[noreturn]] void fail(std::string&& what);
  std::string stuck() const;
  PhaseBarrier& phase_barrier(uint32_t barrier);
  void end_phase_if_done(PhaseBarrier& barrier);
  bool finish_a_box_copy();
  unsigned char* in_shared(uint32_t address, int bytes, int align, const char* what);
  Meeting& meeting(int warps) { return meetings_[warps == 1 ? 0 : 1][static_cast<size_t>(thread / 32 / warps)]; }

  // Not a power of two, or the tops of all stacks would share a few sets of the processor's caches.
  static constexpr size_t kStackBytes = (128 << 10) + 320;
  static constexpr int kMaxBlockThreads = 1024;
  unsigned char* stacks_ = nullptr;
  boost::context::detail::fcontext_t scheduler_ = nullptr;
  KernelEntry kernel_ = nullptr;
  const void* params_ = nullptr;
  std::vector<Fiber> fibers_;
  std::deque<int> ready_;
  std::vector<Meeting> meetings_[2];
  Barrier barriers_[16];
  std::map<uint32_t, PhaseBarrier> phase_barriers_;
  std::vector<int> phase_waiters_;
  std::deque<BoxCopy> box_copies_;
  std::vector<BoxStore> box_stores_;
  std::vector<WarpgroupProducts> products_;
  unsigned shared_bytes_ = 0;
  std::vector<unsigned char> shared_store_;
  bool backwards_ = false;
  bool waited_ = false;               ///< some thread has waited for the preceding kernel
  bool starts_next_ = false;          ///< CallShape's: before that wait, too
  bool holds_ = false;                ///< that kernel has not run yet
  std::vector<int> grid_waiters_;     ///< threads that wait for it
  std::vector<Block*> cluster_;       ///< its blocks, this one among them
  std::vector<int> cluster_waiters_;  ///< threads of this block at sync_cluster
  std::vector<int> counter_waiters_;  ///< and at counter_wait
  std::string error_;
};

}  // namespace tenon::cuda::test
