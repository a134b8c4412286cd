// The step between a model's tensors and the kernels that read them. A kernel requests memory that holds the value of a
// constant expression over parameters, in a given layout and element type; the owner of such memory
// (runtime/weight_store.h) makes it once for all kernels that request the same.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/stream.h"
#include "tenon/backend/weight_source.h"
#include "tenon/expr/expr.h"

namespace tenon {

/// A parameter from which weights are made: in host memory, or in device memory if an update has written it there.
struct ParamView {
  DType dtype = DType::F32;
  Shape shape;
  const void* data = nullptr;
  bool on_device = false;
};

/// What weights are made from.
struct WeightMaking {
  Stream& stream;  ///< the stream that the work is enqueued on
  std::function<ParamView(const std::string& name)> param;
  std::span<void* const> needs = {};  ///< memory of the request's `needs`, in that order
  mutable bool waited = false;        ///< whether making waited for the stream, which cannot be recorded then

  /// The parameter that `leaf` names. Throws Error(Model) if its shape differs.
  ParamView find(const Expr& leaf) const;
};

/// A request for memory, and how to fill it.
struct WeightRequest {
  struct Part {
    std::string key;  ///< identifies all that its bytes depend on: expression, layout, type. Equal keys, equal bytes.
    int64_t bytes = 0;
  };
  std::vector<Part> parts;          ///< made together; a kernel's requests have one part
  std::vector<std::string> params;  ///< parameters that `make` reads, each once
  std::vector<std::string> needs;   ///< keys of other parts that `make` reads; they must be requested earlier
  /// Fills the parts' memory, which holds zeros or the result of an earlier call. Owns what it needs. Throws
  /// Error(Model).
  std::function<void(const WeightMaking& with, std::span<void* const> parts)> make;
};

/// Names of the model's parameters that `roots` read, each once. Computed parameters count as the ones they are made
/// of.
std::vector<std::string> params_of(std::span<const Expr> roots);
/// The key of parameter `leaf` unchanged, in the leaf's type.
std::string plain_key(const Expr& leaf);

/// Makes the requested weights in memory of their own: `allocate` returns zeros. One entry per part.
std::vector<std::shared_ptr<void>> make_apart(std::span<const WeightRequest> requests, const WeightMaking& with,
                                              const std::function<std::shared_ptr<void>(int64_t bytes)>& allocate);

}  // namespace tenon
