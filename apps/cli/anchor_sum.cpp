// oneDNN's routes for single anchors, weights packed as it likes best.
#include "anchor_sum.h"
#include "tenon/core/stop.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <dnnl.hpp>

namespace tenon::cli {
namespace {

using dnnl::memory;
using Dims = memory::dims;

// Primitives with memory for all their operands, ready to be called. `weights`: those of the first primitive, which
// calls take in turn.
struct Ready {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<dnnl::primitive> primitives;
  std::vector<std::unordered_map<int, memory>> arguments;
  std::vector<memory> weights;
  size_t calls = 0;

  // Memory that is touched, so that its pages exist when the clock runs.
  memory make(const memory::desc& md) const {
    memory m(md, engine);
    std::fill_n(static_cast<unsigned char*>(m.get_data_handle()), md.get_size(), static_cast<unsigned char>(0));
    return m;
  }
  void add(const dnnl::primitive& p, std::unordered_map<int, memory> args) {
    primitives.push_back(p);
    arguments.push_back(std::move(args));
  }
  void add_weights(const memory::desc& md, int count) {
    for (int i = 0; i < count; ++i) weights.push_back(make(md));
  }
  void run() {
    if (!weights.empty()) arguments[0].insert_or_assign(DNNL_ARG_WEIGHTS, weights[calls++ % weights.size()]);
    for (size_t i = 0; i < primitives.size(); ++i) primitives[i].execute(stream, arguments[i]);
    stream.wait();
  }
};

memory::data_type type_of(DType dtype) {
  return dtype == DType::BF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory add_matmul(Ready& ready, const memory& a, const memory::desc& b, const memory::desc& c) {
  const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(a.get_desc(), b, c), ready.engine);
  memory out = ready.make(pd.dst_desc());
  ready.add(dnnl::matmul(pd),
            {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, ready.make(pd.weights_desc())}, {DNNL_ARG_DST, out}});
  return out;
}

void make_gemm(Ready& ready, const AnchorShape& s, memory::data_type type, int weights) {
  const bool batched = s.batch > 1;
  const auto plain = batched ? memory::format_tag::abc : memory::format_tag::ab;
  const auto dims = [&](int64_t rows, int64_t columns) {
    return batched ? Dims{s.batch, rows, columns} : Dims{rows, columns};
  };
  add_matmul(ready, ready.make({dims(s.m, s.k), type, plain}), {dims(s.k, s.n), type, memory::format_tag::any},
             {dims(s.m, s.n), type, plain});
  ready.add_weights(ready.arguments[0].at(DNNL_ARG_WEIGHTS).get_desc(), weights);
}

void make_convolution(Ready& ready, const AnchorShape& s, memory::data_type type, bool winograd, int weights) {
  const auto any = memory::format_tag::any;
  const int64_t oh = (s.h + s.pads[0] + s.pads[2] - s.kernel) / s.stride + 1,
                ow = (s.w + s.pads[1] + s.pads[3] - s.kernel) / s.stride + 1;
  const auto algorithm = winograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::desc desc(
      dnnl::prop_kind::forward_inference, algorithm, {{s.images, s.c, s.h, s.w}, type, any},
      {{s.o, s.c, s.kernel, s.kernel}, type, any}, {{s.images, s.o, oh, ow}, type, any}, {s.stride, s.stride},
      {s.pads[0], s.pads[1]}, {s.pads[2], s.pads[3]});
  const dnnl::convolution_forward::primitive_desc pd(desc, ready.engine);
  ready.add(dnnl::convolution_forward(pd), {{DNNL_ARG_SRC, ready.make(pd.src_desc())},
                                            {DNNL_ARG_WEIGHTS, ready.make(pd.weights_desc())},
                                            {DNNL_ARG_DST, ready.make(pd.dst_desc())}});
  ready.add_weights(pd.weights_desc(), weights);
}

// Two heads at a time with their whole score matrices; the caller scales up.
constexpr int64_t kHeadsAtOnce = 2;

void make_attention(Ready& ready, const AnchorShape& s, memory::data_type type) {
  const auto plain = memory::format_tag::abc;
  const int64_t heads = std::min(kHeadsAtOnce, s.batch * s.heads);
  const memory q = ready.make({{heads, s.queries, s.depth}, type, plain});
  const memory scores = add_matmul(ready, q, {{heads, s.depth, s.keys}, type, memory::format_tag::acb},
                                   {{heads, s.queries, s.keys}, type, plain});
  const dnnl::softmax_forward::primitive_desc softmax(
      dnnl::softmax_forward::desc(dnnl::prop_kind::forward_inference, scores.get_desc(), 2), ready.engine);
  ready.add(dnnl::softmax_forward(softmax), {{DNNL_ARG_SRC, scores}, {DNNL_ARG_DST, scores}});
  add_matmul(ready, scores, {{heads, s.keys, s.depth}, type, plain}, {{heads, s.queries, s.depth}, type, plain});
}

}  // namespace

double median_ms(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  constexpr double kBudget = 60;
  constexpr size_t kLeast = 3, kMost = 25;
  call();
  std::vector<double> times;
  double spent = 0;
  while (times.size() < kLeast || (spent < kBudget && times.size() < kMost)) {
    check_stop();
    const auto begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    spent += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

std::optional<double> time_onednn(const AnchorShape& shape, DType dtype, bool winograd, int weights, int threads) {
  if (threads > 0) omp_set_num_threads(threads);
  const bool convolution = shape.kind == AnchorShape::Kind::Conv2d;
  if (winograd && !convolution) return {};
  try {
    Ready ready;
    double scale = 1;
    if (convolution)
      make_convolution(ready, shape, type_of(dtype), winograd, weights);
    else if (shape.kind == AnchorShape::Kind::Gemm)
      make_gemm(ready, shape, type_of(dtype), weights);
    else {
      make_attention(ready, shape, type_of(dtype));
      const int64_t heads = shape.batch * shape.heads;
      scale = static_cast<double>(heads) / static_cast<double>(std::min(kHeadsAtOnce, heads));
    }
    return scale * median_ms([&ready] { ready.run(); });
  } catch (const dnnl::error&) {
    return {};  // no such primitive on this machine
  }
}

}  // namespace tenon::cli
