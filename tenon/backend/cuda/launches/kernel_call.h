// One kernel call of a launch: a kernel of ours (compiled text, its argument and its grid), or a call of a vendor's
// library. A launch is a list of kernel calls.
#pragma once
#include <optional>

#include "tenon/backend/cuda/codegen/program_source.h"
#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/libraries/library_call.h"

namespace tenon::cuda {

/// The address of a leaf's first element.
using Resolve = std::function<void*(const Expr& leaf)>;

/// True for a leaf that is not being written.
using SettledLeaf = std::function<bool(const Expr& leaf)>;

/// A pointer inside the sizes of a skeleton, that is known when the launch is bound. `at`: bytes from the first of
/// them.
struct SizesPointer {
  size_t at;
  void* address;
};

/// The memory that a library's call works in, as a pointer to set: it wants LibraryCall::workspace_bytes().
inline constexpr size_t kLibraryWorkspace = 0;

/// Text of a kernel before it is put together.
struct KernelParts {
  std::string name;      ///< for people
  std::string headers;   ///< include lines of device/ and of node bodies
  std::string functors;  ///< in namespace tenon::device
  std::string kernel;    ///< KERNEL(..) { .. }
};

class KernelCall {
 public:
  /// Starts to compile.
  KernelCall(Device& device, const KernelParts& text, const Params& params, const LaunchShape& shape);
  /// A library's call on `operands`.
  KernelCall(Device& device, std::string name, std::shared_ptr<LibraryCall> call,
             const std::vector<LibraryOperand>& operands);
  /// Fills the argument's pointers; before the first launch, and again if an address has changed.
  void bind(const Resolve& resolve);
  /// Sets a pointer inside the sizes, or a call's workspace (at kLibraryWorkspace).
  void set(const SizesPointer& pointer);
  void launch(Stream& stream);
  /// Starts when its predecessor has ended: what is no kernel (a fill) cannot be overlapped.
  void wait_whole() { shape_.overlaps = false; }
  const std::string& name() const { return name_; }
  bool calls_library() const { return call_ != nullptr; }
  /// Kernels of a library's call.
  int library_kernels() const;

 private:
  std::string name_;
  std::shared_ptr<Function> function_;  ///< or:
  std::shared_ptr<LibraryCall> call_;   ///< whose workspace and operands are the addresses in params_
  std::vector<std::byte> params_;
  std::vector<Params::Pointer> pointers_;
  std::vector<int64_t> offsets_;  ///< in bytes, of a call's operands from their leaves
  std::vector<Params::Map> maps_;
  size_t sizes_at_ = 0;
  Device* device_;
  LaunchShape shape_;
};

/// A kernel call that computes `outputs` over `domain`: the rows skeleton where a value reduces rows, else map, each of
/// whose blocks begins with `lets`, which then need no memory. The graph that the values live in outlives the kernel
/// call. `settled`: leaves that nobody writes who may still run when the kernel call's predecessor has begun.
KernelCall plain_call(Device& device, const std::string& name, std::span<const ProgramOutput> outputs,
                      const Shape& domain, std::span<const ProgramOutput> lets = {}, const SettledLeaf& settled = {});
/// True if each block of a map over a domain of `elements_of_map` should compute `lets`: they are small beside it.
bool lets_fit_map(const Device& device, std::span<const ProgramOutput> lets, int64_t elements_of_map);

/// Small values in order, each of which may read the ones before it, in one kernel call of one block; nothing if one is
/// too large for that. `outputs`: one each.
std::optional<KernelCall> lets_call(Device& device, const std::string& name, std::span<const ProgramOutput> outputs);

/// Whether there is one.
bool lets_fit_block(std::span<const ProgramOutput> outputs);

/// Bytes of the leaf's elements.
int64_t leaf_bytes(const Expr& leaf);

}  // namespace tenon::cuda
