// The anchors of a plan, and the engine's own kernels on each of them alone.
#include <algorithm>
#include <limits>
#include <map>

#include "apps/cli/anchor_sum.h"
#include "apps/cli/median.h"
#include "apps/cli/sample_inputs.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/explain/readable.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/models/hash_weights.h"
#include "tenon/runtime/executable.h"

namespace tenon::cli {
namespace {

// Empty for anchors that are not timed on their own, such as a draw. `keys`: of attention over a cache, if known.
std::optional<AnchorShape> shape_of(const Expr& anchor, std::optional<int64_t> keys) {
  AnchorShape s;
  if (counts_keys(anchor) && !keys) return {};
  const Shape &x = anchor->in[0].shape(), &w = anchor->in[1].shape();
  const std::vector<int64_t>& ints = anchor->attrs.ints;
  if (anchor.is<nodes::Attention>()) {
    s.kind = AnchorShape::Kind::Attention;
    s.batch = x[0];
    s.heads = x[1];
    s.key_heads = w[1];
    s.queries = x[2];
    s.keys = counts_keys(anchor) ? *keys : w[2];
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
  } else if (anchor.is<nodes::Linear>() || anchor.is<nodes::BranchedLinear>()) {
    s.n = w[-2];
    s.k = w[-1];
    s.batch = w.rank() > 2 ? w.rows() / w[-2] : 1;
    s.m = x.rows() / s.batch;
  } else {
    return {};
  }
  s.x = anchor->in[0].dtype();
  s.weight = anchor->in[1].dtype();
  s.arithmetic = *arithmetic_of(anchor);
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

// A linear layer's matrix, quantised from `t` if the anchor multiplies a quantised one.
Expr matrix(Graph& g, const AnchorShape& s, DType t) {
  if (size_of(s.weight) > 1) return param(g, "w", s.weight, {s.n, s.k});
  return quantize_rows(param(g, "w", t, {s.n, s.k}), s.weight).q;
}

// The anchor over inputs in memory, with empty holes. `t`: the network's type.
Expr bare_anchor(Graph& g, const AnchorShape& s, DType t) {
  switch (s.kind) {
    case AnchorShape::Kind::Conv2d:
      return conv2d(input(g, "x", s.x, {s.images, s.h, s.w, s.c}),
                    param(g, "w", s.weight, {s.o, s.c, s.kernel, s.kernel}), s.stride,
                    {s.pads[0], s.pads[1], s.pads[2], s.pads[3]});
    case AnchorShape::Kind::Attention:
      return attention(input(g, "q", s.x, {s.batch, s.heads, s.queries, s.depth}),
                       input(g, "k", s.weight, {s.batch, s.key_heads, s.keys, s.depth}),
                       input(g, "v", s.weight, {s.batch, s.key_heads, s.keys, s.depth}), 0.125, s.causal);
    default:
      if (s.batch > 1)
        return linear(input(g, "x", s.x, {s.batch, s.m, s.k}), input(g, "w", s.weight, {s.batch, s.n, s.k}));
      return linear(input(g, "x", s.x, {s.m, s.k}), matrix(g, s, t));
  }
}

int64_t weight_elements(const AnchorShape& s) {
  return s.kind == AnchorShape::Kind::Conv2d ? s.o * s.c * s.kernel * s.kernel : s.n * s.k;
}

double time_own(const AnchorShape& s, DType dtype, const std::shared_ptr<Backend>& backend, int weights) {
  Graph g;
  PlanOptions options;
  options.target = backend->target();
  const Expr anchor = multiplied_in(bare_anchor(g, s, dtype), s.arithmetic);  // which planning keeps
  const Plan plan = make_plan(std::array{Result{"y", cast(anchor, dtype)}}, options);
  const bool convolution = s.kind == AnchorShape::Kind::Conv2d;
  const Shape weight =
      convolution ? Shape{s.o, s.c, s.kernel, s.kernel} : Shape{std::max<int64_t>(s.n, 1), std::max<int64_t>(s.k, 1)};
  const RandomWeight source(weight);
  const std::shared_ptr<Stream> stream = backend->make_stream();  // a device runs all calls in turn
  std::vector<std::unique_ptr<Executable>> executables;
  constexpr int64_t kMaxBytes = 512 << 20;  // each also has its own activations
  do {
    executables.push_back(std::make_unique<Executable>(plan, backend, source, std::map<std::string, void*>(), stream));
    set_sample_inputs(*executables.back());
    executables.back()->run_all();
    weights = static_cast<int>(
        std::min<int64_t>(weights, kMaxBytes / std::max<int64_t>(1, executables.back()->allocated().total())));
  } while (static_cast<int>(executables.size()) < weights);
  // A device replays many calls between two waits, so that a launch and a wait for each do not count.
  constexpr size_t kReplays = 32;
  const int runs = backend->records() ? static_cast<int>(1 + (kReplays - 1) / executables.size()) : 1;
  std::vector<std::function<void()>> calls;
  calls.reserve(executables.size());
  for (const auto& e : executables) calls.emplace_back([&e, runs] { e->enqueue(Rate::Step, runs); });
  return median_of_turns(calls, [&] { executables.back()->wait(); }) / runs;
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
      return "gemm " + (batch > 1 ? count(batch) + " x " : "") + count(m) + "x" + count(n) + "x" + count(k) +
             (size_of(arithmetic) > 1 ? "" : " in " + std::string(name_of(arithmetic)));
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
  const std::optional<int64_t> keys = sample_keys(plan);
  for (const Launch& l : plan.phases.back().launches) {
    const Expr anchor = anchor_of(l);
    const std::optional<AnchorShape> shape = anchor ? shape_of(anchor, keys) : std::nullopt;
    if (!shape) continue;
    AnchorTime& t = found[*shape];
    t.shape = *shape;
    t.flops = anchor_flops(anchor);
    if (counts_keys(anchor))
      t.flops *= static_cast<double>(shape->keys) / static_cast<double>(anchor->in[1].shape()[2]);
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
