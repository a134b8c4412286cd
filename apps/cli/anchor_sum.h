// Anchors alone: the time of a network's matrix products, convolutions and attentions by themselves, each by the
// fastest route on this machine. The yardstick for a whole step. An anchor that occurs several times in the network
// cycles through as many weights, so that they are read from memory as in a step, rather than from a cache warmed by
// the last call.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/plan/plan.h"

namespace tenon::cli {

/// An anchor's sizes and types. Activation operands are as large as in the plan; of a cache only the keys that are
/// there with sample inputs.
struct AnchorShape {
  enum class Kind { Gemm, Conv2d, Attention } kind = Kind::Gemm;
  int64_t batch = 1, m = 0, n = 0, k = 0;  ///< Gemm: batch of [m,k] x [n,k]
  int64_t images = 0, h = 0, w = 0, c = 0, o = 0, kernel = 0, stride = 1;
  int64_t pads[4] = {0, 0, 0, 0};                                      ///< Conv2d: top, left, bottom, right
  int64_t heads = 0, key_heads = 0, queries = 0, keys = 0, depth = 0;  ///< Attention
  bool causal = false;
  DType x = DType::F32, weight = DType::F32, arithmetic = DType::F32;  ///< of the operands, and what it multiplies in
  std::string text() const;
  auto operator<=>(const AnchorShape&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm
};

/// An anchor, its number of occurrences in the plan, and its best times in milliseconds by route.
struct AnchorTime {
  AnchorShape shape;
  int count = 0;
  double flops = 0;
  std::optional<double> onednn_bf16, onednn_f32, winograd, own;
  double best() const;
  /// Number of weights that calls cycle through: `count`, or as many as fit into 512 MB; 1 if no operand is a weight.
  int weights() const;
};

/// The distinct products, convolutions and attentions of the plan's fastest phase.
std::vector<AnchorTime> anchors_of(const Plan& plan);
/// Times every route of every anchor: ours in the anchor's own arithmetic, with results in `dtype`, the network's type;
/// oneDNN's in `dtype` or a wider one.
void time_anchors(std::vector<AnchorTime>& anchors, DType dtype, const std::shared_ptr<Backend>& backend, int threads);
/// Sum of count * best, milliseconds.
double anchor_sum(const std::vector<AnchorTime>& anchors);

/// oneDNN's best time for one anchor, cycling through `weights` packed weights; empty if this machine has no oneDNN
/// (onednn::find() says why) or oneDNN has no such primitive. `threads`: 0 for OpenMP's default.
std::optional<double> time_onednn(const AnchorShape& shape, DType dtype, bool winograd, int weights, int threads);

}  // namespace tenon::cli
