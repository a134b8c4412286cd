// What a backend makes of a launch: a kernel, or a list kernel. Making it decides how it runs and what it needs, before
// anything is allocated.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tenon/backend/list_form.h"
#include "tenon/backend/stream.h"
#include "tenon/backend/weights.h"

namespace tenon {

/// Bytes that a kernel needs besides buffers and weights.
struct LaunchMemory {
  int64_t kept = 0;     ///< owned by the kernel; zero-filled before its first run
  int64_t scratch = 0;  ///< used during a run; shared between kernels
};

/// Looks up a buffer's address by name. Addresses stay the same between runs, until Kernel::rebind.
using BufferTable = std::function<void*(const std::string& buffer)>;

/// A launch on a backend. Making it decides how it runs and what it needs; then it is bound to memory.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual LaunchMemory memory() const = 0;
  /// The weights that the kernel reads.
  virtual std::span<const WeightRequest> weights() const = 0;
  /// Called before the first run. `weights`: the memory of the weights it asked for, in that order; `kept`:
  /// LaunchMemory::kept bytes. Both are aligned like Backend::allocate and outlive the kernel.
  virtual void bind(const BufferTable& buffers, std::span<void* const> weights, void* kept) = 0;
  /// Called when buffers may have moved: from the next run on, `buffers` gives their addresses. Weights stay.
  virtual void rebind(const BufferTable& buffers) = 0;
  /// Enqueues one run on the stream. `scratch` has at least the kernel's scratch bytes and is 64-byte aligned.
  virtual void run(Stream& stream, void* scratch) = 0;
  /// Number of device kernels that a run enqueues, those of library calls included. Known once the kernel is
  /// made.
  virtual int kernels() const { return 1; }
  /// How it runs, in a phrase: "avx512bf16 tiles, 2 bands" (for explain).
  virtual std::string describe() const { return {}; }
};

/// One member of a list: the addresses of the launch's vectors, in the order of ListKernel::vectors, and their common
/// length.
struct ListItem {
  std::array<void*, kMaxListVectors> vectors{};
  int64_t count = 0;
};

/// A launch prepared to run over lists of tensors of any number and length; each run passes the addresses.
class ListKernel {
 public:
  virtual ~ListKernel() = default;
  /// Names of an item's vectors, and of the launch's scalars, each in the order in which a run passes them.
  virtual std::span<const std::string> vectors() const = 0;
  virtual std::span<const std::string> scalars() const = 0;
  /// Enqueues what computes the launch's outputs for every item: one kernel, or as few as the device's limits allow.
  /// The caller's stream may be capturing a graph, so the launch itself holds everything except the tensors.
  virtual void run(Stream& stream, std::span<const ListItem> items, std::span<const float> scalars) = 0;
  /// For a launch whose only output has no buffer: index of the first item with a value that is not 0 (or is NaN), or
  /// -1. Waits.
  virtual int64_t find(Stream& stream, std::span<const ListItem> items, std::span<const float> scalars) = 0;
  virtual std::string describe() const { return {}; }
};

}  // namespace tenon
