// Weights between a model's tensors and the kernels that read them. A kernel asks for memory that holds what a constant
// expression over parameters becomes in a layout and an element type; whoever keeps such memory
// (runtime/weight_store.h) makes it once for all kernels that ask for the same.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/stream.h"
#include "tenon/expr/expr.h"

namespace tenon {

/// A tensor in host memory that somebody else owns. Data may have any alignment.
struct HostView {
  DType dtype = DType::F32;
  Shape shape;
  const void* data = nullptr;
};

/// A model's tensors by name. `find` throws Error(Model) for an unknown name; `done` says that nothing is being made of
/// the tensor any more: its memory may go until it is asked for again.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual HostView find(const std::string& name) const = 0;
  virtual void done(const std::string&) const {}
};

/// A parameter while weights are made of it: in host memory, or in the device's, where an update has come from there.
struct ParamView {
  DType dtype = DType::F32;
  Shape shape;
  const void* data = nullptr;
  bool on_device = false;
};

/// What there is to make weights of.
struct WeightMaking {
  Stream& stream;  ///< that the work goes to
  std::function<ParamView(const std::string& name)> param;
  std::span<void* const> needs = {};  ///< memory of what the request needs, in its order

  /// The parameter that `leaf` names. Throws Error(Model) if its shape is another.
  ParamView find(const Expr& leaf) const;
};

/// Memory that is asked for, and how to fill it.
struct WeightRequest {
  struct Part {
    std::string key;  ///< says all that its bytes depend on: expression, layout, type. Equal keys, equal bytes.
    int64_t bytes = 0;
  };
  std::vector<Part> parts;          ///< made together; a kernel's requests have one
  std::vector<std::string> params;  ///< parameters that `make` reads, each once
  std::vector<std::string> needs;   ///< keys of what else it reads; asked for before
  /// Fills the parts' memory, which is zeros, or what an earlier call left. Holds what it needs. Throws Error(Model).
  std::function<void(const WeightMaking& with, std::span<void* const> parts)> make;
};

/// The names of the model's parameters that `roots` read, each once: of computed ones those that they are made of.
std::vector<std::string> params_of(std::span<const Expr> roots);
/// The key of parameter `leaf` as it is, in the leaf's type.
std::string plain_key(const Expr& leaf);

/// Makes what is asked for, in memory that nobody else has: `allocate` gives zeros. One for each part.
std::vector<std::shared_ptr<void>> make_apart(std::span<const WeightRequest> requests, const WeightMaking& with,
                                              const std::function<std::shared_ptr<void>(int64_t bytes)>& allocate);

}  // namespace tenon
