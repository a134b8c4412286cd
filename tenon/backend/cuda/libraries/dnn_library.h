// What the conv2d and attention skeletons need from a vendor's neural-network library: cuDNN (libraries/cudnn.h), or a
// stand-in in tests. Layouts are ours, so that nothing is permuted: images [batch, height, width, channels], filters
// [outputs, height, width, channels], heads with any strides.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tenon/backend/cuda/libraries/library_call.h"
#include "tenon/core/dtype.h"

namespace tenon::cuda {

/// y = x * w (+ bias [outputs]), all dense and of `type` (f16 or bf16); sums in f32, rounded once. A call takes the
/// addresses of x, w, y, then the bias if there is one.
struct DnnConv {
  DType type = DType::F16;
  int64_t batch = 1, height = 1, width = 1, channels = 1;
  int64_t out_height = 1, out_width = 1, outputs = 1;
  int64_t kernel_h = 1, kernel_w = 1, stride = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  bool bias = false;
};

/// Strides between batches, heads and tokens, in elements; a head's columns are contiguous.
struct DnnHeads {
  int64_t batch = 0, head = 0, token = 0;
};
/// o = softmax(scale q k^T) v, all of `type`; f32 in between. A call takes the addresses of q, k, v and o.
struct DnnAttention {
  DType type = DType::F16;
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, depth = 64;
  float scale = 1;
  DnnHeads q, k, v, o;
};

using DnnProblem = std::variant<DnnConv, DnnAttention>;
/// The whole problem in words, equal for equal problems: "conv2d f16 2x64x64x320 -> 64x64x320 by 3x3x1 pad 1 1 1 1
/// bias".
std::string describe(const DnnProblem& problem);

/// The library's own description of how it solves the problem, and the call.
struct DnnPlan {
  std::string engine;
  bool compiles = false;  ///< in every process that plans it, for half a second or more
  std::shared_ptr<LibraryCall> call;
};

class DnnLibrary {
 public:
  virtual ~DnnLibrary() = default;
  /// "cudnn 9.19.0".
  virtual const std::string& name() const = 0;
  /// At most `most` plans that give the same bits in every run, those that the library ranks fastest first; none if it
  /// does not support the problem. Throws Error(Device).
  virtual std::vector<DnnPlan> likeliest(const DnnProblem& problem, size_t most) = 0;
  /// The call for one of them; null if this library cannot run it.
  virtual std::shared_ptr<LibraryCall> plan(const DnnProblem& problem, const std::string& engine) = 0;
};

}  // namespace tenon::cuda
