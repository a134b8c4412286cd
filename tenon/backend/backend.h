// The only interface between plans and devices. A backend makes a kernel from a launch and reports what it needs before
// anything is allocated; once bound to memory, the kernel can run. Backends register themselves by name; no other code
// includes a backend's folder.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <typeinfo>
#include <vector>

#include "tenon/backend/list_form.h"
#include "tenon/backend/stream.h"
#include "tenon/backend/trace.h"
#include "tenon/backend/weights.h"
#include "tenon/kernels/launch.h"
#include "tenon/kernels/target.h"

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

/// Kernel runs recorded once, which a device replays as one unit.
class Replay {
 public:
  virtual ~Replay() = default;
  virtual void run(Stream& stream) = 0;
};

/// A device's memory and kernels. Calls may come from several threads; each object it makes (stream, kernel, replay) is
/// used by one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// One line: device, instruction set or compute capability, threads.
  virtual std::string describe() const = 0;
  /// False for a backend whose buffers never hold what a plan computes, so it cannot produce a picture.
  virtual bool computes() const { return true; }
  /// Bytes that can be allocated now (free physical memory).
  virtual int64_t memory_available() const = 0;
  /// Element types in which plans may compute here, the default first.
  virtual std::vector<DType> types() const = 0;
  /// What a planner should know about this backend. A plan made for another target still runs: an operand that a kernel
  /// cannot read in place is first written to scratch by extra kernels that the plan does not show (Kernel::kernels).
  /// The target may outlive this backend.
  virtual Target target() const = 0;
  /// 64-byte aligned, zero-filled memory that any stream may use at once. Throws Error(Memory).
  virtual std::shared_ptr<void> allocate(int64_t bytes) = 0;
  /// Whether device memory is separate from host memory, so that weights can be offloaded.
  virtual bool offloads() const { return false; }
  /// Uninitialized host memory that `fetch` can read. Throws Error(Memory).
  virtual std::shared_ptr<void> allocate_pinned(int64_t bytes) { return allocate(bytes); }
  /// Enqueues a copy from such memory to device memory without waiting for it. The stream may be recording.
  virtual void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) { copy_in(stream, dst, host, bytes); }
  /// Makes the unbound kernel of a launch that has its form. Allocates nothing.
  virtual std::unique_ptr<Kernel> make_kernel(const Launch& launch) = 0;
  /// Prepares a launch of the map skeleton over vectors. Every Input has the same shape [n], which stands for any
  /// length; a ScalarInput is a number that each run passes. An output is written to the vector named like its buffer,
  /// which may also be an input: element i of an output depends on elements i only, and all inputs are read before any
  /// output is written. At most kMaxListVectors vectors. Throws Error(Internal) for any other launch.
  virtual std::unique_ptr<ListKernel> prepare_list(const Launch& launch) = 0;
  /// Starts tracing the device; work recorded after this call shows up piece by piece. Only one trace at a time. Null
  /// if kernels run one after another as the host calls them. Throws Error(Device) that says what is missing.
  virtual std::unique_ptr<Trace> trace() { return nullptr; }
  /// Whether record() does anything.
  virtual bool records() const { return false; }
  /// Records the kernels that `runs` enqueues on the stream passed to it, instead of running them. All of them must
  /// have run before. Null if recording gains nothing.
  virtual std::unique_ptr<Replay> record(const std::function<void(Stream& recording)>& runs) {
    static_cast<void>(runs);
    return nullptr;
  }
  virtual std::shared_ptr<Stream> make_stream() { return std::make_shared<Stream>(); }
  /// Whether its work may go to `stream`, which is then of its own kind and device.
  virtual bool takes(const Stream& stream) const { return typeid(stream) == typeid(Stream); }
  /// Wraps a stream that the caller owns, on a GPU a CUstream of its primary context (null: the default stream). The
  /// caller keeps it alive as long as this object.
  virtual std::shared_ptr<Stream> borrow_stream(void* native) {
    static_cast<void>(native);
    return make_stream();
  }
  /// Copies within device memory.
  virtual void copy(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;
  /// Copies from the host; returns when `src` may change.
  virtual void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;
  /// Copies to the host; returns when the data has arrived.
  virtual void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;
};

struct BackendOptions {
  int threads = 0;  ///< 0: all processors
  int ordinal = 0;  ///< which of several devices
  /// Results for a sample (of the first axis) are bit-identical in every batch. Costs time on a GPU; always true on the
  /// CPU.
  bool batch_invariant = false;
  /// In bf16, a single token's products and its attention over a cache are summed in the same order as those of whole
  /// texts: equal bits, which training needs of its rollouts. Costs time on a GPU; always true on the CPU.
  bool one_order = false;
};
using BackendFactory = std::function<std::unique_ptr<Backend>(const BackendOptions&)>;
/// Something that a backend needs from the machine, for `tenon env`.
struct BackendFact {
  std::string name;   ///< "nvrtc"
  std::string value;  ///< what was found and where, or why nothing was found
  std::string hint;   ///< the command that installs it if it is missing
};
/// Inspects the machine without making a backend. Does not throw.
using BackendProbe = std::function<std::vector<BackendFact>()>;
/// Whether the machine has the device that a backend runs on.
struct Availability {
  std::string device;   ///< "NVIDIA H200"; empty if there is none
  std::string problem;  ///< why the device cannot be used; empty if it can
};
/// How a backend takes part in the choice of "auto".
struct AutomaticChoice {
  int preference = 0;  ///< the usable backend with the highest value wins; 0: never chosen
  /// Inspects the machine without making a backend. Does not throw. Empty: the backend is always usable.
  std::function<Availability()> look = {};
};
/// Adds a backend to the registry: `static const RegisterBackend r("cpu", [](const BackendOptions& o) {...});`
struct RegisterBackend {
  RegisterBackend(std::string name, BackendFactory factory, BackendProbe probe = {}, AutomaticChoice automatic = {});
};
/// The device name that stands for the best backend on this machine.
inline constexpr std::string_view kAutomaticDevice = "auto";
/// What "auto" resolves to on this machine.
struct ChosenBackend {
  std::string name;
  std::string device;   ///< the device it was chosen for; empty for the backend that every machine has
  std::string problem;  ///< why a better device that is present cannot be used
};
ChosenBackend choose_backend();
/// Makes the backend of this name, or the one that "auto" resolves to. Throws Error(Device) that lists the names.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options = {});
/// Throws Error(Usage) about `where` if plans for this backend cannot compute in `type`.
void check_type(const Backend& backend, DType type, const std::string& where);
std::vector<std::string> backend_names();
/// What this backend's probe found; empty if it has no probe.
std::vector<BackendFact> probe_backend(const std::string& name);

}  // namespace tenon
