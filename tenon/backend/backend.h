// The one interface between plans and devices. A backend makes a kernel of a launch and says what it takes before
// anything is allocated; bound to memory it runs. A backend registers itself by name; nobody includes a backend's
// folder.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/list_form.h"
#include "tenon/backend/stream.h"
#include "tenon/backend/trace.h"
#include "tenon/backend/weights.h"
#include "tenon/kernels/launch.h"
#include "tenon/kernels/target.h"

namespace tenon {

/// Bytes that a kernel takes beside buffers and weights.
struct LaunchMemory {
  int64_t kept = 0;     ///< the kernel's own; zeros before its first run
  int64_t scratch = 0;  ///< during a run; kernels share it
};

/// Where buffers live: the address of a buffer by name. Stable between runs, until Kernel::rebind.
using BufferTable = std::function<void*(const std::string& buffer)>;

/// A launch on a backend: made, which decides how it runs and what it takes, and then bound to memory.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual LaunchMemory memory() const = 0;
  /// The weights that it reads.
  virtual std::span<const WeightRequest> weights() const = 0;
  /// Before the first run. `weights`: memory of what it asked for, in that order; `kept`: of LaunchMemory::kept bytes.
  /// Both have the alignment of Backend::allocate and outlive the kernel.
  virtual void bind(const BufferTable& buffers, std::span<void* const> weights, void* kept) = 0;
  /// Buffers may have moved: from the next run on they are where `buffers` says. Weights stay.
  virtual void rebind(const BufferTable& buffers) = 0;
  /// Puts one run on the stream. `scratch` has at least the kernel's scratch bytes, 64-byte aligned.
  virtual void run(Stream& stream, void* scratch) = 0;
  /// Kernels that a run puts on the stream, a library's call and a fill of memory among them; known once it is made.
  virtual int kernels() const { return 1; }
  /// How it runs, in a phrase: "avx512bf16 tiles, 2 bands" (for explain).
  virtual std::string describe() const { return {}; }
};

/// One member of a list: the address of each of the launch's vectors, in the order of ListKernel::vectors, and their
/// common length.
struct ListItem {
  std::array<void*, kMostListVectors> vectors{};
  int64_t count = 0;
};

/// A launch made ready to run over lists of tensors of any number and any lengths, whose addresses come with each run.
class ListKernel {
 public:
  virtual ~ListKernel() = default;
  /// Names of the vectors of an item, and of the launch's scalars, each in the order in which a run gives them.
  virtual std::span<const std::string> vectors() const = 0;
  virtual std::span<const std::string> scalars() const = 0;
  /// Puts on the stream what computes the launch's outputs for every item: one kernel, or as few as the device's limits
  /// allow. A stream of the caller's may be recording a graph, for which everything but the tensors is kept in the
  /// launch itself.
  virtual void run(Stream& stream, std::span<const ListItem> items, std::span<const float> scalars) = 0;
  /// For a launch whose only output has no buffer: the first item of which a value is not 0 (or NaN), or -1. Waits.
  virtual int64_t find(Stream& stream, std::span<const ListItem> items, std::span<const float> scalars) = 0;
  virtual std::string describe() const { return {}; }
};

/// Runs of kernels recorded once, which a device repeats as one.
class Replay {
 public:
  virtual ~Replay() = default;
  virtual void run(Stream& stream) = 0;
};

/// A kernel that a backend compiled, as machine code shows it.
struct CompiledKernel {
  std::string name;
  int registers = 0, stack_bytes = 0, shared_bytes = 0;
  int launches = 0;                   ///< in the plans prepared so far
  std::vector<std::string> problems;  ///< what is wrong with it, in sentences
};

/// Whether a vendor's library has plans for what launches could ask of it, on a GPU that need not be here.
struct PlannedCalls {
  struct Call {
    std::string problem;
    std::string engine;   ///< the library's choice; empty if it has none
    std::string why_not;  ///< then
  };
  std::string library;  ///< with its version; empty: none was asked
  std::vector<Call> calls;
  double seconds = 0;  ///< that planning took
};

/// A device's memory and kernels. Calls may come from several threads; what it makes (streams, kernels, replays) is
/// used by one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// One line: device, instruction set or compute capability, threads.
  virtual std::string describe() const = 0;
  /// False for a backend whose buffers never hold what a plan computes: no picture can come of it.
  virtual bool computes() const { return true; }
  /// Bytes that may be allocated now (physical memory left).
  virtual int64_t memory_available() const = 0;
  /// Element types that plans may compute in here, the default first.
  virtual std::vector<DType> types() const = 0;
  /// What plans for it should know. One that was made for another target runs all the same: what a kernel cannot read
  /// as it is it stores itself, in scratch, by kernels that the plan does not show (Kernel::kernels). May outlive this.
  virtual Target target() const = 0;
  /// 64-byte aligned memory, zero-filled, that any stream may use at once; throws Error(Memory).
  virtual std::shared_ptr<void> allocate(int64_t bytes) = 0;
  /// Whether its memory is apart from the host's, so that there is something to offload to.
  virtual bool offloads() const { return false; }
  /// Memory of the host that `fetch` reads, with any contents; throws Error(Memory).
  virtual std::shared_ptr<void> allocate_pinned(int64_t bytes) { return allocate(bytes); }
  /// Puts a copy from such memory to the device's on the stream, which may be recording, and does not wait for it.
  virtual void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) { copy_in(stream, dst, host, bytes); }
  /// The kernel of a launch that has its form, unbound. Allocates nothing.
  virtual std::unique_ptr<Kernel> make_kernel(const Launch& launch) = 0;
  /// A launch of the map skeleton over vectors: every Input has one shape [n], which stands for any length; a
  /// ScalarInput is a number that each run gives. An output goes to the vector of its buffer's name, which may be one
  /// that is read: element i of an output depends on elements i alone, and all are read before any is written. At most
  /// kMostListVectors vectors. Throws Error(Internal) for another launch.
  virtual std::unique_ptr<ListKernel> prepare_list(const Launch& launch) = 0;
  /// Begins to note what the device does; what is recorded after that is seen piece by piece. One at a time. Null where
  /// kernels run one after the other as the host calls them. Error(Device) says what is missing.
  virtual std::unique_ptr<Trace> trace() { return nullptr; }
  /// Whether record() records.
  virtual bool records() const { return false; }
  /// Records the kernels that `runs` puts on the stream it is given, all of which have run before, instead of running
  /// them. Null where nothing is gained.
  virtual std::unique_ptr<Replay> record(const std::function<void(Stream& recording)>& runs) {
    static_cast<void>(runs);
    return nullptr;
  }
  virtual std::shared_ptr<Stream> make_stream() { return std::make_shared<Stream>(); }
  /// A stream that the caller has, on a GPU a CUstream of its primary context (null: the default stream), and keeps for
  /// as long as this lives.
  virtual std::shared_ptr<Stream> borrow_stream(void* native) {
    static_cast<void>(native);
    return make_stream();
  }
  /// Copies within the device's memory.
  virtual void copy(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;
  /// From the host; returns when `src` may change.
  virtual void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;
  /// To the host; returns when it is there.
  virtual void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) = 0;
  /// All kernels of a backend that compiles for an architecture (BackendOptions::compile_for), compiled.
  virtual std::vector<CompiledKernel> compiled() { return {}; }
  /// Of a backend that plans too (BackendOptions::plan_libraries).
  virtual PlannedCalls planned() { return {}; }
};

struct BackendOptions {
  int threads = 0;               ///< 0: all processors
  int ordinal = 0;               ///< which of several devices
  std::string compile_for = {};  ///< cuda: no GPU, compile for this architecture ("sm_90a") instead of running
  bool plan_libraries = false;   ///< then: see too whether vendors' libraries have plans for it
  /// What is computed of a sample (of the first axis) is the same to the bit in every batch. Costs time on a GPU; on
  /// the CPU it is so anyway.
  bool batch_invariant = false;
  /// A token's products and attention over a cache add up in bf16 in the order that whole texts' do: equal bits, which
  /// training needs of its rollouts. Costs time on a GPU; on the CPU it is so anyway.
  bool one_order = false;
};
using BackendFactory = std::function<std::unique_ptr<Backend>(const BackendOptions&)>;
/// Something that a backend needs of the machine, for `tenon env`.
struct BackendFact {
  std::string name;   ///< "nvrtc"
  std::string value;  ///< what was found and where, or why it was not
  std::string hint;   ///< the command that installs it, where it is missing
};
/// Looks at the machine without making a backend; throws nothing.
using BackendProbe = std::function<std::vector<BackendFact>()>;
/// Whether the machine has what a backend runs on.
struct Availability {
  std::string device;   ///< "NVIDIA H200"; empty: there is none
  std::string problem;  ///< why it cannot be used all the same; empty if it can
};
/// What a backend is to "auto".
struct AutomaticChoice {
  int preference = 0;  ///< of the backends that can be used the highest is taken; 0: never
  /// Looks at the machine without making a backend; throws nothing. Empty: it can always be used.
  std::function<Availability()> look = {};
};
/// Adds a backend to the registry: `static const RegisterBackend r("cpu", [](const BackendOptions& o) {...});`
struct RegisterBackend {
  RegisterBackend(std::string name, BackendFactory factory, BackendProbe probe = {}, AutomaticChoice automatic = {});
};
/// The device name that stands for the best backend of this machine.
inline constexpr std::string_view kAutomaticDevice = "auto";
/// What "auto" means here.
struct ChosenBackend {
  std::string name;
  std::string device;   ///< what it was chosen for; empty for the one that every machine has
  std::string problem;  ///< of a better device that is there and cannot be used
};
ChosenBackend choose_backend();
/// Makes the backend of this name, or the one that "auto" means; throws Error(Device) that lists the names.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options = {});
/// Error(Usage) of `where` if plans of this backend do not compute in a type.
void check_type(const Backend& backend, DType type, const std::string& where);
std::vector<std::string> backend_names();
/// What the probe of this backend found; nothing if it has none.
std::vector<BackendFact> probe_backend(const std::string& name);

}  // namespace tenon
