// Anchors alone: what a network's matrix products, convolutions and attentions cost by themselves, each by the fastest
// route on this machine. The yardstick for a whole step. An anchor that the network has several times runs over as many
// weights in turn, so that they come from memory as in a step, and not from a cache that holds the last call's.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/plan/plan.h"

namespace tenon::cli {

/// An anchor's sizes. Operands that are activations are as large as those of the plan.
struct AnchorShape {
  enum class Kind { Gemm, Conv2d, Attention } kind = Kind::Gemm;
  int64_t batch = 1, m = 0, n = 0, k = 0;  ///< Gemm: batch of [m,k] x [n,k]
  int64_t images = 0, h = 0, w = 0, c = 0, o = 0, kernel = 0, stride = 1;
  int64_t pads[4] = {0, 0, 0, 0};                                      ///< Conv2d: top, left, bottom, right
  int64_t heads = 0, key_heads = 0, queries = 0, keys = 0, depth = 0;  ///< Attention
  bool causal = false;
  std::string text() const;
  auto operator<=>(const AnchorShape&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm
};

/// An anchor, how often the plan has it, and its best times in milliseconds by route.
struct AnchorTime {
  AnchorShape shape;
  int count = 0;
  double flops = 0;
  std::optional<double> onednn_bf16, onednn_f32, winograd, own;
  double best() const;
  /// Weights that calls take in turn: `count`, or as many as 512 MB hold; 1 where no operand is a weight.
  int weights() const;
};

/// The different anchors of the plan's fastest phase.
std::vector<AnchorTime> anchors_of(const Plan& plan);
/// Times every route of every anchor. `dtype`: the network's type; routes in a wider type are allowed, narrower are
/// not.
void time_anchors(std::vector<AnchorTime>& anchors, DType dtype, const std::shared_ptr<Backend>& backend, int threads);
/// Sum of count * best, milliseconds.
double anchor_sum(const std::vector<AnchorTime>& anchors);

/// oneDNN's routes for one anchor, with packed weights, `weights` of them in turn; nothing where this machine has no
/// oneDNN (onednn::find() says why) or it has no such primitive. `threads`: 0 for OpenMP's own choice.
std::optional<double> time_onednn(const AnchorShape& shape, DType dtype, bool winograd, int weights, int threads);

/// Milliseconds: the median of repeated calls, at least 3, more while they fit 60 ms. One call before is not counted.
double median_ms(const std::function<void()>& call);

}  // namespace tenon::cli
