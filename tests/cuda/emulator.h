// A device whose multiprocessor is this machine's processor: it compiles the same kernel sources with the host's
// compiler and runs them block by block, every thread of a block a fiber. It is strict where a GPU is lenient: see
// vocabulary_host.h.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tests/cuda/emulated_block.h"

namespace tenon::cuda::test {

struct EmulatorOptions {
  std::string arch = "sm_90a";
  int multiprocessors = 4;
  int argument_bytes = 4096;
  int64_t memory_bytes = int64_t{4} << 30;
  /// Include folders: "tenon/backend/cuda/device/x.h" and what that includes in turn.
  std::vector<std::string> includes = default_includes();
  /// Of a block's threads that can go on the last one does, not the one that has waited longest: finds errors that the
  /// usual order hides.
  bool backwards = false;
  /// Runs this kernel call, counted from 0, as late as possible: when its successor or the host waits for it.
  int late = -1;
  /// Work on a stream is done when somebody waits for it: finds missing waits.
  bool lazy = false;
  /// With `lazy`: work beside a stream (Stream::beside) is done at once, after only that part of the stream's own work
  /// that it waits for: finds memory that is overwritten too soon.
  bool early_copies = false;
  bool batch_invariant = false;
  bool one_order = false;

  static std::vector<std::string> default_includes();
};

/// Errors in a kernel (a deadlock, lanes of a warp at different instructions, an access outside shared memory) are
/// thrown by the call as Error(Device) that names kernel, block and thread. Memory ends at an inaccessible page.
class Emulator : public Device {
 public:
  explicit Emulator(EmulatorOptions options = {});
  ~Emulator() override;
  const DeviceFacts& facts() const override { return facts_; }
  int64_t memory_available() const override { return facts_.memory_bytes; }
  /// Compiles immediately. Shared objects are cached in the system's temporary folder, by a hash of source and included
  /// headers.
  std::shared_ptr<Function> load(const KernelSource& source) override;
  std::shared_ptr<void> allocate(int64_t bytes) override;
  std::shared_ptr<void> allocate_pinned(int64_t bytes) override;
  /// Error(Device) for memory not from allocate_pinned.
  void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) override;
  std::shared_ptr<Stream> make_stream() override;
  bool takes(const Stream& stream) const override;
  std::shared_ptr<Stream> borrow_stream(void* stream) override;
  void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void fill_zero(Stream& stream, void* dst, int64_t bytes) override;
  std::unique_ptr<Replay> record(const std::function<void(Stream& recording)>& runs) override;
  TensorMap encode(const TensorBox& box) const override;
  void call(Stream& stream, const std::string& name, const std::function<void(void* native)>& put) override;
  /// Totals over all kernel calls of the process; a test may reset it to {}.
  static BlockStatistics& statistics();

 private:
  struct Work;
  class Queue;
  struct Tape;
  class Kernel;
  void run_late();
  EmulatorOptions options_;
  DeviceFacts facts_;
  int calls_ = 0;
  std::function<void()> late_;  ///< kernel calls that have not run yet
  bool next_starts_ = false;    ///< CallShape::starts_next of the last call
  std::shared_ptr<std::set<const void*>> host_memory_ = std::make_shared<std::set<const void*>>();
  std::map<std::string, std::shared_ptr<Kernel>> kernels_;
};

}  // namespace tenon::cuda::test
