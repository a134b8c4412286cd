// What the CUDA backend asks of a device: compile a kernel's source, move memory, launch, capture. The driver
// implements it for a GPU (driver/), the tests for this machine's processor: the same sources, block by block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/cuda/libraries/dnn_library.h"
#include "tenon/backend/stream.h"
#include "tenon/backend/trace.h"

namespace tenon::cuda {

/// What a launch can pass since CUDA 12.1; 4096 before.
inline constexpr int kMostArgumentBytes = 32764;

inline constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// A kernel to compile: one translation unit that includes the embedded headers below device/ as
/// "tenon/backend/cuda/device/x.h" and defines one kernel named `tenon_kernel` (KERNEL in vocabulary.h).
struct KernelSource {
  std::string name;  ///< for people: "gemm 128x128 f16, epilogue: add silu"
  std::string text;
  bool exact =
      false;  ///< every product and sum is rounded on its own: no fused multiply-add but where the text has one
};

struct LaunchShape {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned threads = 1;       ///< in x
  unsigned shared_bytes = 0;  ///< dynamic shared memory
  unsigned cluster = 1;       ///< blocks of a cluster, along x
  bool overlaps = false;      ///< may start while its predecessor drains (programmatic dependent launch)
  bool starts_next = false;   ///< lets its successor start before its own wait has ended
  bool reads_early = false;   ///< reads settled memory before its wait: not behind one that starts_next
};

/// What a kernel takes of a multiprocessor, read from its machine code.
struct KernelResources {
  int registers = 0;
  int stack_bytes = 0;  ///< a frame in local memory, spills included
  int static_shared_bytes = 0;
};

/// A compiled kernel. Compilation may still be under way when this is handed out: what needs the code waits for it and
/// throws Error(Device) if it failed.
class Function {
 public:
  virtual ~Function() = default;
  /// Puts a launch on the stream. `params` is the kernel's one argument, byte for byte.
  virtual void launch(Stream& stream, const LaunchShape& shape, std::span<const std::byte> params) = 0;
  virtual KernelResources resources() = 0;
};

/// Launches recorded once and repeated as one.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch(Stream& stream) = 0;
};

/// A rectangular box of a tensor of 1 to 5 dimensions that the copy engine moves to shared memory (TMA). Innermost
/// first.
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

/// DeviceFacts::chosen_samples of a device that is batch invariant: those of a guided picture.
inline constexpr int kChosenSamples = 2;

struct DeviceFacts {
  std::string name;  ///< "NVIDIA H200"
  std::string arch;  ///< "sm_90a", "sm_89"
  int multiprocessors = 1;
  int shared_bytes = 49152;  ///< most dynamic shared memory of a block
  int64_t memory_bytes = 0;
  int argument_bytes = 4096;  ///< that a launch passes at most
  /// Samples (of the first axis) that cores, tiles and orders of sums are chosen for, however many a launch has: so a
  /// sample's results are the same in every batch. 0: for those that it has.
  int chosen_samples = 0;
  bool one_order = false;  ///< BackendOptions::one_order

  bool batch_invariant() const { return chosen_samples > 0; }
  /// What a launch of `samples` is chosen for.
  int64_t samples_to_choose_for(int64_t samples) const { return batch_invariant() ? chosen_samples : samples; }
};

class MatmulLibrary;

/// One GPU. Calls may come from several threads, for different streams; nothing but copies out, allocation and
/// Stream::synchronize waits. Streams are those that it has given.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceFacts& facts() const = 0;
  virtual int64_t memory_available() const = 0;
  /// Starts to compile, or finds in the cache. Equal sources give the same function.
  virtual std::shared_ptr<Function> load(const KernelSource& source) = 0;
  virtual std::shared_ptr<Stream> make_stream() = 0;
  /// A CUstream of the caller's in this GPU's primary context.
  virtual std::shared_ptr<Stream> borrow_stream(void* stream) = 0;
  /// 256-byte aligned, filled with zeros when it returns. Throws Error(Memory).
  virtual std::shared_ptr<void> allocate(int64_t bytes) = 0;
  /// Memory of the host that the copy engine reads by itself. Throws Error(Memory).
  virtual std::shared_ptr<void> allocate_pinned(int64_t bytes) = 0;
  /// A copy from such memory, done in turn; recorded like launches are.
  virtual void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) = 0;
  virtual void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;  ///< returns when src may change
  virtual void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;  ///< returns when it is there
  virtual void copy(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;
  virtual void fill_zero(Stream& stream, void* dst, int64_t bytes) = 0;
  /// Records what `runs` puts on the stream that it gets, instead of running it.
  virtual std::unique_ptr<Recording> record(const std::function<void(Stream& recording)>& runs) = 0;
  virtual TensorMap encode(const TensorBox& box) const = 0;
  /// Puts a library's work on the stream, which `put` gets as a CUstream with the GPU's context current; recorded like
  /// launches are. `name`: as a kernel's, for people.
  virtual void call(Stream& stream, const std::string& name, const std::function<void(void* native)>& put) = 0;
  /// Kernels, fills and copies that `put` puts on a stream, as call() gives it one: counted, never run. 1 where the
  /// device cannot tell.
  virtual int count(const std::function<void(void* native)>& put) {
    static_cast<void>(put);
    return 1;
  }
  /// The library of products, loaded when it is first asked for, or null: there is none here.
  virtual MatmulLibrary* matmul_library() { return nullptr; }
  /// The library of convolutions and attention, likewise.
  virtual DnnLibrary* dnn_library() { return nullptr; }
  /// As Backend::trace.
  virtual std::unique_ptr<Trace> trace() { return nullptr; }
  /// Says that a launch has this problem, which such a library could do. For a device that only compiles.
  virtual void announce(const DnnProblem& problem) { static_cast<void>(problem); }
};

}  // namespace tenon::cuda
