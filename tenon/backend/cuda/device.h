// What the CUDA backend needs from a device: compile a kernel's source, move memory, start kernels, capture. The driver
// implements it for a GPU (driver/), the tests for this machine's CPU: the same sources, block by block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/cuda/libraries/dnn_library.h"
#include "tenon/backend/stream.h"
#include "tenon/backend/trace.h"

namespace tenon::cuda {

/// Limit on a kernel call's arguments since CUDA 12.1; 4096 before.
inline constexpr int kMaxArgumentBytes = 32764;

inline constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// A kernel to compile: one translation unit that includes the embedded headers below device/ as
/// "tenon/backend/cuda/device/x.h" and defines one kernel named `tenon_kernel` (KERNEL in vocabulary.h).
struct KernelSource {
  std::string name;  ///< for people: "gemm 128x128 f16, epilogue: add silu"
  std::string code;
  bool exact =
      false;  ///< every product and sum rounds separately: no fused multiply-add except where the source has one
};

/// How a kernel is called: its grid, and how it may overlap its neighbours in the stream.
struct CallShape {
  int64_t grid_x = 1, grid_y = 1, grid_z = 1;
  int64_t threads = 1;            ///< in x
  int64_t shared_bytes = 0;       ///< dynamic shared memory
  int64_t cluster = 1;            ///< blocks per cluster, along x
  bool overlaps = false;          ///< may start while its predecessor drains (CUDA: programmatic dependent launch)
  bool starts_next = false;       ///< lets its successor start before its own wait has ended
  bool reads_early = false;       ///< reads settled memory before its wait: not after a kernel that starts_next
  bool waits_for_blocks = false;  ///< blocks wait for others of the grid, which is along x alone
};

/// What a kernel uses of a multiprocessor, read from its machine code.
struct KernelResources {
  int registers = 0;
  int stack_bytes = 0;  ///< stack frame in local memory, spills included
  int static_shared_bytes = 0;
};

/// A compiled kernel. Compilation may still be running when this is returned; calls that need the code wait for it and
/// throw Error(Device) if it failed.
class Function {
 public:
  virtual ~Function() = default;
  /// Enqueues a call. `params` is the kernel's single argument, byte for byte.
  virtual void enqueue(Stream& stream, const CallShape& shape, std::span<const std::byte> params) = 0;
  virtual KernelResources resources() = 0;
};

/// A rectangular box of a tensor of 1 to 5 dimensions that TMA copies to shared memory. Innermost dimension first.
struct TensorBox {
  void* address = nullptr;  ///< 16-byte aligned
  int element_bytes = 2;
  int rank = 0;
  int64_t extent[5] = {}, stride_bytes[5] = {};  ///< stride of dimension 0 is element_bytes
  int box[5] = {};
  int swizzle_bytes = 0;  ///< 0, 32, 64 or 128
};
struct alignas(64) TensorMap {
  std::byte opaque[128];
};

/// DeviceFacts::chosen_samples of a batch-invariant device: the two samples of a guided picture.
inline constexpr int kChosenSamples = 2;

struct DeviceFacts {
  std::string name;  ///< "NVIDIA H200"
  std::string arch;  ///< "sm_90a", "sm_89"
  int multiprocessors = 1;
  int shared_bytes = 49152;  ///< most dynamic shared memory per block
  int64_t memory_bytes = 0;
  int argument_bytes = 4096;  ///< most bytes of arguments per kernel call
  /// Number of samples (of the first axis) for which cores, tiles and summation orders are chosen, however many a
  /// launch has, so that a sample's results are the same in every batch. 0: use the launch's own number.
  int chosen_samples = 0;
  bool one_order = false;  ///< BackendOptions::one_order

  bool batch_invariant() const { return chosen_samples > 0; }
  /// The sample count for which a launch of `samples` is tuned.
  int64_t samples_to_choose_for(int64_t samples) const { return batch_invariant() ? chosen_samples : samples; }
};

class MatmulLibrary;

/// One GPU. Calls may come from several threads, for different streams; only copies to the host, allocation and
/// Stream::synchronize wait. Streams passed in must come from this device.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceFacts& facts() const = 0;
  virtual int64_t memory_available() const = 0;
  /// Starts compilation, or finds the kernel in the cache. Equal sources return the same function.
  virtual std::shared_ptr<Function> load(const KernelSource& source) = 0;
  virtual std::shared_ptr<Stream> make_stream() = 0;
  /// Whether the stream comes from this device.
  virtual bool takes(const Stream& stream) const = 0;
  /// Wraps the caller's CUstream, which belongs to this GPU's primary context.
  virtual std::shared_ptr<Stream> borrow_stream(void* stream) = 0;
  /// 256-byte aligned; zero-filled by the time it returns. Throws Error(Memory).
  virtual std::shared_ptr<void> allocate(int64_t bytes) = 0;
  /// Page-locked host memory that the copy engine can read directly. Throws Error(Memory).
  virtual std::shared_ptr<void> allocate_pinned(int64_t bytes) = 0;
  /// A copy from such memory in stream order; recorded like kernel calls.
  virtual void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) = 0;
  virtual void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;  ///< returns when src may change
  virtual void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;  ///< returns once it arrived
  virtual void copy(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;
  virtual void fill_zero(Stream& stream, void* dst, int64_t bytes) = 0;
  /// Records what `runs` enqueues on the stream passed to it, instead of running it.
  virtual std::unique_ptr<Replay> record(const std::function<void(Stream& recording)>& runs) = 0;
  virtual TensorMap encode(const TensorBox& box) const = 0;
  /// Enqueues a library's work: `put` gets the stream as a CUstream with the GPU's context current. Recorded like
  /// kernel calls. `name`: for people, like a kernel's.
  virtual void call(Stream& stream, const std::string& name, const std::function<void(void* native)>& put) = 0;
  /// Counts the kernels, fills and copies that `put` enqueues on a stream, given as in call(), without running them. 1
  /// if the device cannot tell.
  virtual int count(const std::function<void(void* native)>& put) {
    static_cast<void>(put);
    return 1;
  }
  /// The library for products, loaded on first use, or null if there is none.
  virtual MatmulLibrary* matmul_library() { return nullptr; }
  /// The library for convolutions and attention, likewise.
  virtual DnnLibrary* dnn_library() { return nullptr; }
  /// See Backend::trace.
  virtual std::unique_ptr<Trace> trace() { return nullptr; }
  /// Reports that a launch has this problem, which such a library could solve. For a device that only compiles.
  virtual void announce(const DnnProblem& problem) { static_cast<void>(problem); }
};

}  // namespace tenon::cuda
