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
  /// Roots of includes, "tenon/backend/cuda/device/x.h" and what that includes in turn.
  std::vector<std::string> includes = default_includes();
  /// Threads of a block start in the opposite order: finds what the usual order hides.
  bool backwards = false;
  /// This launch, the first is 0, runs as late as it can: when its successor waits for it, or the host does.
  int late = -1;
  /// What is put on a stream is done when somebody waits for it: finds what was not waited for.
  bool lazy = false;
  /// Then what is put beside a stream (Stream::beside) is done at once, with no more of the stream's own than it waits
  /// for: finds what was overwritten too soon.
  bool early_copies = false;
  bool batch_invariant = false;
  bool one_order = false;

  static std::vector<std::string> default_includes();
};

/// Errors of a kernel (a deadlock, lanes of a warp at different instructions, an access outside shared memory) are
/// thrown by the launch as Error(Device) that names kernel, block and thread. Memory ends at a page that cannot be
/// accessed.
class Emulator : public Device {
 public:
  explicit Emulator(EmulatorOptions options = {});
  ~Emulator() override;
  const DeviceFacts& facts() const override { return facts_; }
  int64_t memory_available() const override { return facts_.memory_bytes; }
  /// Compiles at once. Shared objects are kept in the system's folder of temporary files, by a hash of source and
  /// headers.
  std::shared_ptr<Function> load(const KernelSource& source) override;
  std::shared_ptr<void> allocate(int64_t bytes) override;
  std::shared_ptr<void> allocate_pinned(int64_t bytes) override;
  /// Error(Device) for memory that allocate_pinned did not give.
  void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) override;
  std::shared_ptr<Stream> make_stream() override;
  std::shared_ptr<Stream> borrow_stream(void* stream) override;
  void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void fill_zero(Stream& stream, void* dst, int64_t bytes) override;
  std::unique_ptr<Recording> record(const std::function<void(Stream& recording)>& runs) override;
  TensorMap encode(const TensorBox& box) const override;
  void call(Stream& stream, const std::string& name, const std::function<void(void* native)>& put) override;
  /// Counted over all launches of the process; a test may set it to {}.
  static BlockStatistics& statistics();

 private:
  struct Work;
  class Queue;
  struct Tape;
  class Kernel;
  void run_late();
  EmulatorOptions options_;
  DeviceFacts facts_;
  int launches_ = 0;
  std::function<void()> late_;  ///< launches that have not run yet
  bool next_starts_ = false;    ///< LaunchShape::starts_next of the last one
  std::shared_ptr<std::set<const void*>> host_memory_ = std::make_shared<std::set<const void*>>();
  std::map<std::string, std::shared_ptr<Kernel>> kernels_;
  std::string headers_hash_;
};

}  // namespace tenon::cuda::test
