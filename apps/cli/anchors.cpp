// The anchors of a plan, and the engine's own kernels on each of them alone.
#include <algorithm>
#include <limits>
#include <map>

#include "apps/cli/anchor_sum.h"
#include "apps/cli/sample_inputs.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/explain/readable.h"
#include "tenon/expr/ops.h"
#include "tenon/models/hash_weights.h"
#include "tenon/runtime/executable.h"

namespace tenon::cli {
namespace {

AnchorShape shape_of(const Expr& anchor) {
  AnchorShape s;
  const Shape &x = anchor->in[0].shape(), &w = anchor->in[1].shape();
  const std::vector<int64_t>& ints = anchor->attrs.ints;
  if (anchor.is<nodes::Attention>()) {
    s.kind = AnchorShape::Kind::Attention;
    s.batch = x[0];
    s.heads = x[1];
    s.key_heads = w[1];
    s.queries = x[2];
    s.keys = w[2];
    s.depth = x[3];
    s.causal = ints[0] != 0;
  } else if (anchor.is<nodes::Conv2d>()) {
    s.kind = AnchorShape::Kind::Conv2d;
    s.images = x[0];
    s.h = x[1];
    s.w = x[2];
    s.c = x[3];
    s.o = w[0];
    s.kernel = w[2];
    s.stride = ints[0];
    std::copy(ints.begin() + 1, ints.begin() + 5, s.pads);
  } else {
    s.n = w[-2];
    s.k = w[-1];
    s.batch = w.rank() > 2 ? w.rows() / w[-2] : 1;
    s.m = x.rows() / s.batch;
  }
  return s;
}

// One random weight, generated when asked for.
class RandomWeight : public WeightSource {
 public:
  explicit RandomWeight(const Shape& shape) : shape_(shape), data_(static_cast<size_t>(2 * shape.numel())) {
    random_weight("w", shape, DType::BF16, 0, shape.numel(), data_.data());
  }
  HostView find(const std::string&) const override { return {DType::BF16, shape_, data_.data()}; }

 private:
  Shape shape_;
  std::vector<std::byte> data_;
};

// The anchor over inputs in memory, stored in the network's type, with empty holes.
Expr bare_anchor(Graph& g, const AnchorShape& s, DType t) {
  switch (s.kind) {
    case AnchorShape::Kind::Conv2d:
      return conv2d(input(g, "x", t, {s.images, s.h, s.w, s.c}), param(g, "w", t, {s.o, s.c, s.kernel, s.kernel}),
                    s.stride, {s.pads[0], s.pads[1], s.pads[2], s.pads[3]});
    case AnchorShape::Kind::Attention:
      return attention(input(g, "q", t, {s.batch, s.heads, s.queries, s.depth}),
                       input(g, "k", t, {s.batch, s.key_heads, s.keys, s.depth}),
                       input(g, "v", t, {s.batch, s.key_heads, s.keys, s.depth}), 0.125, s.causal);
    default:
      if (s.batch > 1) return linear(input(g, "x", t, {s.batch, s.m, s.k}), input(g, "w", t, {s.batch, s.n, s.k}));
      return linear(input(g, "x", t, {s.m, s.k}), param(g, "w", t, {s.n, s.k}));
  }
}

int64_t weight_elements(const AnchorShape& s) {
  return s.kind == AnchorShape::Kind::Conv2d ? s.o * s.c * s.kernel * s.kernel : s.n * s.k;
}

double time_own(const AnchorShape& s, DType dtype, const std::shared_ptr<Backend>& backend, int weights) {
  Graph g;
  PlanOptions options;
  options.target = backend->target();
  const Plan plan = make_plan(std::array{Result{"y", cast(bare_anchor(g, s, dtype), dtype)}}, options);
  const bool convolution = s.kind == AnchorShape::Kind::Conv2d;
  const Shape weight =
      convolution ? Shape{s.o, s.c, s.kernel, s.kernel} : Shape{std::max<int64_t>(s.n, 1), std::max<int64_t>(s.k, 1)};
  const RandomWeight source(weight);
  std::vector<std::unique_ptr<Executable>> executables;
  constexpr int64_t kMaxBytes = 512 << 20;  // each also has its own activations
  do {
    executables.push_back(std::make_unique<Executable>(plan, backend, source));
    set_sample_inputs(*executables.back());
    weights = static_cast<int>(
        std::min<int64_t>(weights, kMaxBytes / std::max<int64_t>(1, executables.back()->allocated().total())));
  } while (static_cast<int>(executables.size()) < weights);
  size_t calls = 0;
  return median_ms([&] { executables[calls++ % executables.size()]->run(); });
}

}  // namespace

std::string AnchorShape::text() const {
  const auto count = [](int64_t v) { return std::to_string(v); };
  switch (kind) {
    case Kind::Conv2d:
      return "conv2d " + count(images) + "x" + count(h) + "x" + count(w) + "x" + count(c) + " -> " + count(o) + ", " +
             count(kernel) + "x" + count(kernel) + (stride > 1 ? " stride " + count(stride) : "");
    case Kind::Attention:
      return "attention " + count(batch) + "x" + count(heads) + " heads, " + count(queries) + " queries, " +
             count(keys) + " keys, " + count(depth) + (causal ? " causal" : "");
    default:
      return "gemm " + (batch > 1 ? count(batch) + " x " : "") + count(m) + "x" + count(n) + "x" + count(k);
  }
}

double AnchorTime::best() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& t : {onednn_bf16, onednn_f32, winograd, own})
    if (t) least = std::min(least, *t);
  return least;
}

int AnchorTime::weights() const {
  constexpr int64_t kElements = 256 << 20;  // 512 MB of two bytes each
  if (shape.kind == AnchorShape::Kind::Attention || shape.batch > 1) return 1;
  return static_cast<int>(std::clamp<int64_t>(kElements / std::max<int64_t>(1, weight_elements(shape)), 1, count));
}

std::vector<AnchorTime> anchors_of(const Plan& plan) {
  std::map<AnchorShape, AnchorTime> found;
  if (plan.phases.empty()) return {};
  for (const Launch& l : plan.phases.back().launches) {
    const Expr anchor = anchor_of(l);
    if (!anchor) continue;
    AnchorTime& t = found[shape_of(anchor)];
    t.shape = shape_of(anchor);
    t.flops = anchor_flops(anchor);
    ++t.count;
  }
  std::vector<AnchorTime> out;
  for (auto& [shape, time] : found) out.push_back(time);
  return out;
}

void time_anchors(std::vector<AnchorTime>& anchors, DType dtype, const std::shared_ptr<Backend>& backend, int threads) {
  for (AnchorTime& a : anchors) {
    check_stop();
    a.own = time_own(a.shape, dtype, backend, a.weights());
    if (backend->name() != "cpu") continue;  // oneDNN's routes are for the CPU
    if (dtype == DType::BF16) a.onednn_bf16 = time_onednn(a.shape, DType::BF16, false, a.weights(), threads);
    a.onednn_f32 = time_onednn(a.shape, DType::F32, false, a.weights(), threads);
    a.winograd = time_onednn(a.shape, DType::F32, true, a.weights(), threads);
  }
}

double anchor_sum(const std::vector<AnchorTime>& anchors) {
  double total = 0;
  for (const AnchorTime& a : anchors) total += a.count * a.best();
  return total;
}

}  // namespace tenon::cli
