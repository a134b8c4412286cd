// The Lion optimizer (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2): one expression
// with two sinks, run by a backend over a list of tensors in one launch. Per element, with the momentum of before the
// step in both places:
//
//   u = beta1 m + (1 - beta1) g
//   p = p (1 - lr weight_decay) - lr sign(u)        sign(0) = 0, sign(NaN) = NaN
//   m = beta2 m + (1 - beta2) g
//
// Numerics. Arithmetic is f32, each product and sum rounded on its own (no fused multiply-add), in the order written.
// The numbers beta, 1 - beta, lr and 1 - lr weight_decay are computed in double and rounded once. So a step has the
// same bits on every backend and for any number of threads. Tensors of bf16 and f16 are widened, and rounded once where
// they are stored. A step that is smaller than half the distance of two bf16 numbers is lost: with `master`, an f32
// copy of the parameter takes the step, and the parameter is the copy rounded.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tenon/backend/backend.h"

namespace tenon {

/// What to do about gradients that are NaN or infinite.
enum class NonFinite : uint8_t {
  Propagate,  ///< nothing special: a NaN makes parameter and momentum NaN; an infinity makes the momentum infinite
  Skip,       ///< these elements keep parameter, momentum and master copy as they are; the others take the step
  Raise,      ///< one more pass over the gradients first: Error(Numeric), and nothing has been written
};

/// One parameter. All addresses are the device's; tensors are contiguous, of `count` elements, and may have any
/// alignment that is natural for their type. No two overlap. With `count` 0 addresses may be null.
struct LionTensor {
  void* param = nullptr;
  void* exp_avg = nullptr;
  const void* grad = nullptr;
  void* master = nullptr;  ///< f32; used where LionTypes::master says so
  int64_t count = 0;
};

/// Element types of a list: each f32, bf16 or f16. PyTorch's convention is one type for all three (LionTypes::all).
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
  bool maximize = false;  ///< takes the gradient's negative
  NonFinite non_finite = NonFinite::Propagate;
  double grad_scale = 1;  ///< gradients are multiplied by it first
};

/// Lion over lists of tensors of one set of types. Keep one for each: what it makes ready at its first step (compiled
/// kernels) serves every later one, whatever the sizes, the number of tensors and the options. One call at a time.
class Lion {
 public:
  /// Error(Usage) for a type that is not f32, bf16 or f16, or a master copy of an f32 parameter.
  Lion(std::shared_ptr<Backend> backend, const LionTypes& types);
  ~Lion();
  Lion(Lion&&) noexcept;
  Lion& operator=(Lion&&) noexcept;

  /// One step of every tensor, put on the stream: on a GPU the call returns when the launch is queued, and may be
  /// captured in a graph; NonFinite::Raise waits for the device and may not. Error(Usage) for a bad option or a missing
  /// address, before anything is written; Error(Numeric) by NonFinite::Raise, which names the tensor.
  void step(Stream& stream, std::span<const LionTensor> tensors, const LionOptions& options);

  /// The first tensor whose gradient holds a NaN or an infinity, or -1. Waits for the stream. For callers who step
  /// several lists and want nothing written if any of them is bad.
  int64_t find_non_finite(Stream& stream, std::span<const LionTensor> tensors);

  const LionTypes& types() const;
  /// The launch as text: skeleton, expression, bytes an element, how the backend runs it.
  std::string explain() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon
