// The Lion optimizer (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2): one expression
// with two outputs, which a backend runs over a list of tensors in one launch. Per element, where both updates read the
// old momentum:
//
//   u = beta1 m + (1 - beta1) g
//   p = p (1 - lr weight_decay) - lr sign(u)        sign(0) = 0, sign(NaN) = NaN
//   m = beta2 m + (1 - beta2) g
//
// Numerics. Arithmetic is f32; each product and sum is rounded separately (no fused multiply-add), in the order
// written. beta, 1 - beta, lr and 1 - lr weight_decay are computed in double and rounded once. A step therefore has the
// same bits on every backend and for any number of threads. Tensors of bf16 and f16 are widened, and rounded once when
// stored. A step smaller than half the distance between two bf16 numbers is lost; with `master`, an f32 copy of the
// parameter takes the step, and the parameter is the rounded copy.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tenon/core/dtype.h"
#include "tenon/core/not_null.h"

namespace tenon {

class Backend;
class Stream;

/// How to treat gradients that are NaN or infinite.
enum class NonFinite : uint8_t {
  Propagate,  ///< as any other: a NaN makes parameter and momentum NaN, an infinity makes the momentum infinite
  Skip,       ///< these elements keep their parameter, momentum and master copy; the others are updated
  Raise,      ///< one more pass over the gradients first: Error(Numeric), and nothing is written
};

/// One parameter. All addresses are on the device; tensors are contiguous, of `count` elements, with the natural
/// alignment of their type. No two overlap. With `count` 0, addresses may be null.
struct LionTensor {
  void* param = nullptr;
  void* exp_avg = nullptr;
  const void* grad = nullptr;
  void* master = nullptr;  ///< f32; used if LionTypes::master is set
  int64_t count = 0;
};

/// Element types of a list: each f32, bf16 or f16. PyTorch uses one type for all three (LionTypes::all).
struct LionTypes {
  DType param = DType::F32;
  DType exp_avg = DType::F32;
  DType grad = DType::F32;
  bool master = false;  ///< every tensor has an f32 master copy, which is read instead of the parameter
  static LionTypes all(DType type, bool with_master = false) { return {type, type, type, with_master}; }
  bool operator==(const LionTypes&) const = default;
};

struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;  ///< in [0, 1)
  double weight_decay = 0;
  bool maximize = false;  ///< negates the gradient
  NonFinite non_finite = NonFinite::Propagate;
  double grad_scale = 1;  ///< gradients are multiplied by it first
};

/// Lion over lists of tensors with one set of types. Keep an instance per set: what its first step prepares (compiled
/// kernels) serves all later ones, whatever the sizes, number of tensors and options. Not for concurrent calls.
class Lion {
 public:
  /// Throws Error(Usage) for a type other than f32, bf16 or f16, or a master copy of an f32 parameter.
  Lion(std::shared_ptr<Backend> backend, const LionTypes& types);
  ~Lion();
  Lion(Lion&&) noexcept;
  Lion& operator=(Lion&&) noexcept;

  /// Enqueues one step of every tensor. On a GPU the call returns once the launch is queued and may be captured in a
  /// graph; NonFinite::Raise waits for the device and may not. Throws Error(Usage) for a bad option or a missing
  /// address, before anything is written, and, with NonFinite::Raise, Error(Numeric) that names the tensor.
  void step(Stream& stream, std::span<const LionTensor> tensors, const LionOptions& options);

  /// The first tensor whose gradient holds a NaN or an infinity, or -1. Waits for the stream. For callers that update
  /// several lists and want nothing written if any of them is bad.
  int64_t find_non_finite(Stream& stream, std::span<const LionTensor> tensors);

  const LionTypes& types() const;
  /// The launch as text: skeleton, expression, bytes per element, and how the backend runs it.
  std::string explain() const;

 private:
  struct State;
  OwnState<State> state_;
};

}  // namespace tenon
