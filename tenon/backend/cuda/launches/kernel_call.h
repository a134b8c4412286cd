// One kernel call of a launch: one of our kernels (compiled source, its argument and its grid) or a call of a vendor's
// library. A launch is a list of kernel calls.
#pragma once
#include <optional>

#include "tenon/backend/cuda/codegen/program_source.h"
#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/libraries/library_call.h"

namespace tenon::cuda {

/// The address of a leaf's first element.
using Resolve = std::function<void*(const Expr& leaf)>;

/// True for a leaf that no running kernel writes.
using SettledLeaf = std::function<bool(const Expr& leaf)>;

/// A pointer inside a skeleton's sizes that is known once the launch is bound. `at`: byte offset within the sizes.
struct SizesPointer {
  size_t at;
  void* address;
};

/// Selects the workspace of a library call, LibraryCall::workspace_bytes() long, as the pointer to set.
inline constexpr size_t kLibraryWorkspace = 0;

/// The parts of a kernel's source.
struct KernelParts {
  std::string name;      ///< for people
  std::string headers;   ///< include lines for device/ and for nodes
  std::string functors;  ///< in namespace tenon::device
  std::string kernel;    ///< KERNEL(..) { .. }
};

class KernelCall {
 public:
  /// Starts compilation.
  KernelCall(Device& device, const KernelParts& source, const Params& params, const CallShape& shape);
  /// A library call on `operands`.
  KernelCall(Device& device, std::string name, std::shared_ptr<LibraryCall> call,
             const std::vector<LibraryOperand>& operands);
  /// Fills in the argument's pointers: before the first call, and again after an address has changed.
  void bind(const Resolve& resolve);
  /// Sets a pointer inside the sizes, or a library call's workspace (at kLibraryWorkspace).
  void set(const SizesPointer& pointer);
  void enqueue(Stream& stream);
  const std::string& name() const { return name_; }
  bool calls_library() const { return call_ != nullptr; }
  /// Number of kernels that a library call starts.
  int library_kernels() const;

 private:
  std::string name_;
  std::shared_ptr<Function> function_;  ///< or:
  std::shared_ptr<LibraryCall> call_;   ///< its workspace and operands are the addresses in params_
  std::vector<std::byte> params_;
  std::vector<Params::Pointer> pointers_;
  std::vector<int64_t> offsets_;  ///< in bytes, of a library call's operands from their leaves
  std::vector<Params::Map> maps_;
  size_t sizes_at_ = 0;
  Device* device_;
  CallShape shape_;
};

/// A kernel call that computes `outputs` over `domain`: the rows skeleton if a value reduces rows, else map. With map,
/// every block first computes `lets`, which then need no memory. The values' graph must outlive the kernel call.
/// `settled`: leaves that no kernel writes which may still run once this call's predecessor has started.
KernelCall plain_call(Device& device, const std::string& name, std::span<const ProgramOutput> outputs,
                      const Shape& domain, std::span<const ProgramOutput> lets = {}, const SettledLeaf& settled = {});
/// The kernel call of a map whose largest operands are column-major (contiguous from one row to the next) and whose
/// result is row-major: it goes through tiles in shared memory (device/launches/transposed.h). Empty for other maps.
/// `matrix`: the domain, split at its last axis.
std::optional<KernelCall> transposed_call(Device& device, const std::string& name,
                                          std::span<const ProgramOutput> outputs, const MatrixDomain& matrix);
/// True if each block of a map over `elements_of_map` elements should compute `lets`: they are small beside the map.
bool lets_fit_map(const Device& device, std::span<const ProgramOutput> lets, int64_t elements_of_map);

/// Computes small values in order, each of which may read earlier ones, in a kernel call of one block. Empty if a value
/// is too large for that. `outputs`: one per value.
std::optional<KernelCall> lets_call(Device& device, const std::string& name, std::span<const ProgramOutput> outputs);

/// Whether lets_call gives a kernel call.
bool lets_fit_block(std::span<const ProgramOutput> outputs);

/// Size of the leaf's elements in bytes.
int64_t leaf_bytes(const Expr& leaf);

}  // namespace tenon::cuda
