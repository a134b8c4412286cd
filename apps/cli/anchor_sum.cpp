// oneDNN's routes for single anchors, with weights in its preferred packing.
#include "apps/cli/anchor_sum.h"

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "apps/cli/median.h"
#include "apps/cli/onednn.h"

namespace tenon::cli {
namespace {

using onednn::Api;
using onednn::MemoryDesc;
using onednn::OperationDesc;

struct NoSuchPrimitive {};

void check(onednn::Status status) {
  if (status != 0) throw NoSuchPrimitive{};
}

// A handle to an object that the library created and must destroy.
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, onednn::Status (*)(Handle)>;

struct Operands {
  onednn::Memory source = nullptr, destination = nullptr;
};

// Primitives with memory for all their operands, ready to run. `weights_`: the weights of the first primitive; calls
// cycle through them.
class Ready {
 public:
  explicit Ready(const Api& api)
      : api_(api), engine_(nullptr, api.engine_destroy), stream_(nullptr, api.stream_destroy) {
    onednn::Engine engine = nullptr;
    check(api.engine_create(&engine, onednn::kCpu, 0));
    engine_.reset(engine);
    onednn::Stream stream = nullptr;
    check(api.stream_create(&stream, engine, onednn::kInOrder));
    stream_.reset(stream);
  }

  MemoryDesc tensor(std::initializer_list<int64_t> shape, onednn::DataType type, onednn::Tag tag) const {
    MemoryDesc desc;
    check(api_.memory_desc_init_by_tag(&desc, static_cast<int>(shape.size()), shape.begin(), type, tag));
    return desc;
  }
  // Allocates memory and touches it, so that page faults are not timed.
  onednn::Memory make(const MemoryDesc& desc) {
    std::vector<Line>& data = data_.emplace_back(api_.memory_desc_get_size(&desc) / sizeof(Line) + 1);
    onednn::Memory memory = nullptr;
    check(api_.memory_create(&memory, &desc, engine_.get(), data.data()));
    memories_.emplace_back(memory, api_.memory_destroy);
    return memory;
  }

  // Uses the primitive's preferred layouts, except for operands that are given. `weights`: number of weights, 0 for
  // none.
  Operands add(const OperationDesc& operation, int weights, Operands given = {}) {
    onednn::PrimitiveDesc made = nullptr;
    check(api_.primitive_desc_create(&made, &operation, nullptr, engine_.get(), nullptr));
    const Owned<onednn::PrimitiveDesc> desc(made, api_.primitive_desc_destroy);
    onednn::Primitive primitive = nullptr;
    check(api_.primitive_create(&primitive, made));
    primitives_.emplace_back(primitive, api_.primitive_destroy);
    const auto operand = [&](onednn::Query which) { return make(*api_.primitive_desc_query_md(made, which, 0)); };
    if (!given.source) given.source = operand(onednn::kSourceDesc);
    if (!given.destination) given.destination = operand(onednn::kDestinationDesc);
    arguments_.push_back({{onednn::kSource, given.source}, {onednn::kDestination, given.destination}});
    if (weights > 0) arguments_.back().push_back({onednn::kWeights, operand(onednn::kWeightsDesc)});
    if (primitives_.size() == 1 && weights > 0) {
      weights_.push_back(arguments_.back().back().memory);
      while (static_cast<int>(weights_.size()) < weights) weights_.push_back(operand(onednn::kWeightsDesc));
    }
    return given;
  }

  void run() {
    if (!weights_.empty()) arguments_[0].back().memory = weights_[calls_++ % weights_.size()];
    for (size_t i = 0; i < primitives_.size(); ++i)
      check(api_.primitive_execute(primitives_[i].get(), stream_.get(), static_cast<int>(arguments_[i].size()),
                                   arguments_[i].data()));
    check(api_.stream_wait(stream_.get()));
  }

  const Api& api() const { return api_; }

 private:
  struct alignas(64) Line {
    unsigned char bytes[64] = {};
  };

  const Api& api_;
  Owned<onednn::Engine> engine_;
  Owned<onednn::Stream> stream_;
  std::vector<std::vector<Line>> data_;
  std::vector<Owned<onednn::Memory>> memories_;
  std::vector<Owned<onednn::Primitive>> primitives_;
  std::vector<std::vector<onednn::Argument>> arguments_;
  std::vector<onednn::Memory> weights_;
  size_t calls_ = 0;
};

onednn::DataType type_of(DType dtype) { return dtype == DType::BF16 ? onednn::kBFloat16 : onednn::kFloat32; }

Operands add_matmul(Ready& ready, const MemoryDesc& a, const MemoryDesc& b, const MemoryDesc& c, int weights,
                    Operands given = {}) {
  OperationDesc product;
  check(ready.api().matmul_desc_init(&product, &a, &b, nullptr, &c));
  return ready.add(product, weights, given);
}

void make_gemm(Ready& ready, const AnchorShape& s, onednn::DataType type, int weights) {
  const auto matrix = [&](int64_t rows, int64_t columns, bool any) {
    if (s.batch > 1) return ready.tensor({s.batch, rows, columns}, type, any ? onednn::kAnyTag : onednn::kAbc);
    return ready.tensor({rows, columns}, type, any ? onednn::kAnyTag : onednn::kAb);
  };
  add_matmul(ready, matrix(s.m, s.k, false), matrix(s.k, s.n, true), matrix(s.m, s.n, false), weights);
}

void make_convolution(Ready& ready, const AnchorShape& s, onednn::DataType type, bool winograd, int weights) {
  const int64_t oh = (s.h + s.pads[0] + s.pads[2] - s.kernel) / s.stride + 1,
                ow = (s.w + s.pads[1] + s.pads[3] - s.kernel) / s.stride + 1;
  const MemoryDesc x = ready.tensor({s.images, s.c, s.h, s.w}, type, onednn::kAnyTag),
                   w = ready.tensor({s.o, s.c, s.kernel, s.kernel}, type, onednn::kAnyTag),
                   y = ready.tensor({s.images, s.o, oh, ow}, type, onednn::kAnyTag);
  const int64_t strides[] = {s.stride, s.stride};
  OperationDesc convolution;
  check(ready.api().convolution_forward_desc_init(&convolution, onednn::kInference,
                                                  winograd ? onednn::kConvolutionWinograd : onednn::kConvolutionDirect,
                                                  &x, &w, nullptr, &y, strides, s.pads, s.pads + 2));
  ready.add(convolution, weights);
}

// Computes two heads at a time with their whole score matrices; the caller scales up.
constexpr int64_t kHeadsAtOnce = 2;

void make_attention(Ready& ready, const AnchorShape& s, onednn::DataType type) {
  const int64_t heads = std::min(kHeadsAtOnce, s.batch * s.heads);
  const MemoryDesc q = ready.tensor({heads, s.queries, s.depth}, type, onednn::kAbc),
                   k = ready.tensor({heads, s.depth, s.keys}, type, onednn::kAcb),
                   scores = ready.tensor({heads, s.queries, s.keys}, type, onednn::kAbc),
                   v = ready.tensor({heads, s.keys, s.depth}, type, onednn::kAbc);
  const onednn::Memory made = add_matmul(ready, q, k, scores, 1).destination;
  OperationDesc softmax;
  check(ready.api().softmax_forward_desc_init(&softmax, onednn::kInference, &scores, 2));
  ready.add(softmax, 0, {made, made});
  add_matmul(ready, scores, v, q, 1, {made, nullptr});
}

}  // namespace

std::optional<double> time_onednn(const AnchorShape& shape, DType dtype, bool winograd, int weights, int threads) {
  const Api* const api = onednn::find().api;
  if (!api) return {};
  if (threads > 0 && api->set_threads) api->set_threads(threads);
  const bool convolution = shape.kind == AnchorShape::Kind::Conv2d;
  if (winograd && !convolution) return {};
  try {
    Ready ready(*api);
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
  } catch (const NoSuchPrimitive&) {
    return {};  // not supported on this machine
  }
}

}  // namespace tenon::cli
