// Offline compilation: the kernels of plans are compiled for an architecture whose device need not be present, and
// nothing runs. Only some backends can; each registers its compiler under the backend's name.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"

namespace tenon {

/// A compiled kernel, as seen in its machine code.
struct CompiledKernel {
  std::string name;
  int registers = 0, stack_bytes = 0, shared_bytes = 0;
  int calls = 0;                      ///< in all plans prepared so far
  std::vector<std::string> problems;  ///< what is wrong with it, as sentences
};

/// Whether a vendor's library has plans for the work that launches could hand to it.
struct PlannedCalls {
  struct Call {
    std::string problem;
    std::string engine;   ///< the library's choice; empty if it has none
    std::string why_not;  ///< why it has none
  };
  std::string library;  ///< with its version; empty if no library was asked
  std::vector<Call> calls;
  double seconds = 0;  ///< time that planning took
};

/// Compiles what is prepared on its backend.
class OfflineCompiler {
 public:
  virtual ~OfflineCompiler() = default;
  /// Where to prepare plans. Each kernel made there is compiled; running it does nothing.
  virtual std::shared_ptr<Backend> backend() const = 0;
  /// All kernels made so far. Waits for the compiler.
  virtual std::vector<CompiledKernel> compiled() = 0;
  /// The library plans for the launches prepared so far.
  virtual PlannedCalls planned() = 0;
};

struct OfflineOptions {
  std::string architecture;     ///< of the device to compile for: "sm_90a"
  bool plan_libraries = false;  ///< also check whether vendors' libraries have plans for it
  BackendOptions backend = {};  ///< `threads` compile; `ordinal` has no effect
};
using OfflineFactory = std::function<std::unique_ptr<OfflineCompiler>(const OfflineOptions&)>;
/// Adds the compiler of a backend.
struct RegisterOfflineCompiler {
  RegisterOfflineCompiler(std::string backend, OfflineFactory factory);
};
/// Makes the compiler of the backend of this name. Throws Error(Usage) that lists the backends that have one.
std::unique_ptr<OfflineCompiler> make_offline_compiler(const std::string& backend, const OfflineOptions& options);

}  // namespace tenon
