// The only interface between plans and devices. A backend makes a kernel (kernel.h) from a launch and reports what it
// needs before anything is allocated; once bound to memory, the kernel can run. Backends register themselves by name;
// no other code includes a backend's folder.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "tenon/backend/stream.h"
#include "tenon/backend/trace.h"
#include "tenon/core/dtype.h"
#include "tenon/kernels/target.h"

namespace tenon {

class Kernel;
class ListKernel;
struct Launch;

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
/// Throws Error(Usage) for a backend whose weights are in host memory anyway.
void check_offloads(const Backend& backend);
std::vector<std::string> backend_names();
/// What this backend's probe found; empty if it has no probe.
std::vector<BackendFact> probe_backend(const std::string& name);

}  // namespace tenon
