#include "tenon/backend/cuda/libraries/cudnn_graph.h"

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

using Attribute = CudnnAttribute;

CudnnDataType type_of(DType t) {
  TENON_CHECK(Internal, t == DType::F16 || t == DType::BF16, "cudnn")
      << "expected tensors of f16 or bf16, got " << name_of(t);
  return t == DType::F16 ? CudnnDataType::Half : CudnnDataType::BFloat16;
}

// Strides of [n, c, h, w] stored as [n, h, w, c].
std::array<int64_t, 4> channels_last(const std::array<int64_t, 4>& dims) {
  return {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(std::shared_ptr<const CudnnApi> api, CudnnKind kind)
    : api_(std::move(api)), kind_(kind) {
  api_->check(api_->create(kind, &object_), "make descriptor " + std::to_string(static_cast<int>(kind)));
}

CudnnDescriptor::~CudnnDescriptor() { api_->destroy(object_); }

CudnnDescriptor& CudnnDescriptor::set(Attribute attribute, CudnnType type, int64_t count, const void* elements) {
  api_->check(api_->set(object_, attribute, type, count, elements),
              "set attribute " + std::to_string(static_cast<int>(attribute)));
  return *this;
}
CudnnDescriptor& CudnnDescriptor::set(Attribute attribute, int64_t value) {
  return set(attribute, CudnnType::Int64, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(Attribute attribute, std::span<const int64_t> values) {
  return set(attribute, CudnnType::Int64, static_cast<int64_t>(values.size()), values.data());
}
CudnnDescriptor& CudnnDescriptor::set(Attribute attribute, bool value) {
  return set(attribute, CudnnType::Boolean, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(Attribute attribute, CudnnDataType value) {
  return set(attribute, CudnnType::DataType, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(Attribute attribute, const CudnnDescriptor& value) {
  return set(attribute, std::array{value.get()});
}
CudnnDescriptor& CudnnDescriptor::set(Attribute attribute, std::span<const CudnnObject> values) {
  return set(attribute, CudnnType::Object, static_cast<int64_t>(values.size()), values.data());
}

CudnnDescriptor& CudnnDescriptor::finalize() {
  api_->check(try_finalize(), "finalize descriptor " + std::to_string(static_cast<int>(kind_)));
  return *this;
}

CudnnGraph::CudnnGraph(std::shared_ptr<const CudnnApi> api, const DnnProblem& problem) : api_(std::move(api)) {
  std::visit([this](const auto& p) { describe(p); }, problem);
}

CudnnDescriptor& CudnnGraph::make(CudnnKind kind) {
  return *descriptors_.emplace_back(std::make_unique<CudnnDescriptor>(api_, kind));
}

CudnnDescriptor& CudnnGraph::make_tensor(CudnnDataType type, const Dims& dims, const Dims& strides) {
  constexpr int64_t kAlignment = 16;
  return make(CudnnKind::Tensor)
      .set(Attribute::TensorDataType, type)
      .set(Attribute::TensorDimensions, dims)
      .set(Attribute::TensorStrides, strides)
      .set(Attribute::TensorAlignment, kAlignment)
      .set(Attribute::TensorId, next_id_++);
}

const CudnnDescriptor& CudnnGraph::tensor(DType type, const Dims& dims, const Dims& strides) {
  ++tensors_;
  return make_tensor(type_of(type), dims, strides).finalize();
}

const CudnnDescriptor& CudnnGraph::scalar(float value) {
  scalars_.push_back(value);
  const Dims one = {1, 1, 1, 1};
  return make_tensor(CudnnDataType::Float, one, one).set(Attribute::TensorIsByValue, true).finalize();
}

void CudnnGraph::add_bias(const CudnnDescriptor& sum, const CudnnDescriptor& bias, const CudnnDescriptor& y) {
  constexpr int kAdd = 0;
  const CudnnDescriptor& what = make(CudnnKind::Pointwise)
                                    .set(Attribute::PointwiseMode, CudnnType::PointwiseMode, 1, &kAdd)
                                    .set(Attribute::PointwisePrecision, CudnnDataType::Float)
                                    .finalize();
  operations_.push_back(make(CudnnKind::OperationPointwise)
                            .set(Attribute::PointwiseObject, what)
                            .set(Attribute::PointwiseX, sum)
                            .set(Attribute::PointwiseB, bias)
                            .set(Attribute::PointwiseY, y)
                            .finalize()
                            .get());
}

void CudnnGraph::describe(const DnnConv& c) {
  using Two = std::array<int64_t, 2>;
  const Dims image = {c.batch, c.channels, c.height, c.width}, filter = {c.outputs, c.channels, c.kernel_h, c.kernel_w},
             result = {c.batch, c.outputs, c.out_height, c.out_width};
  const CudnnDescriptor& x = tensor(c.type, image, channels_last(image));
  const CudnnDescriptor& w = tensor(c.type, filter, channels_last(filter));
  const CudnnDescriptor& y = tensor(c.type, result, channels_last(result));
  const CudnnDescriptor* bias = c.bias ? &tensor(c.type, {1, c.outputs, 1, 1}, {c.outputs, 1, 1, 1}) : nullptr;
  constexpr int kCrossCorrelation = 1;
  const CudnnDescriptor& what = make(CudnnKind::Convolution)
                                    .set(Attribute::ConvolutionPrecision, CudnnDataType::Float)
                                    .set(Attribute::ConvolutionMode, CudnnType::ConvolutionMode, 1, &kCrossCorrelation)
                                    .set(Attribute::ConvolutionSpatialDims, int64_t{2})
                                    .set(Attribute::ConvolutionStrides, Two{c.stride, c.stride})
                                    .set(Attribute::ConvolutionPrePaddings, Two{c.pad_top, c.pad_left})
                                    .set(Attribute::ConvolutionPostPaddings, Two{c.pad_bottom, c.pad_right})
                                    .set(Attribute::ConvolutionDilations, Two{1, 1})
                                    .finalize();
  const CudnnDescriptor& sum = bias ? make_tensor(CudnnDataType::Float, result, channels_last(result))
                                          .set(Attribute::TensorIsVirtual, true)
                                          .finalize()
                                    : y;
  const float alpha = 1, beta = 0;
  operations_.push_back(make(CudnnKind::OperationConvolution)
                            .set(Attribute::ForwardConvolution, what)
                            .set(Attribute::ForwardX, x)
                            .set(Attribute::ForwardW, w)
                            .set(Attribute::ForwardY, sum)
                            .set(Attribute::ForwardAlpha, CudnnType::Float, 1, &alpha)
                            .set(Attribute::ForwardBeta, CudnnType::Float, 1, &beta)
                            .finalize()
                            .get());
  if (bias) add_bias(sum, *bias, y);
}

void CudnnGraph::describe(const DnnAttention& a) {
  const Dims of_queries = {a.batch, a.heads, a.queries, a.depth}, of_keys = {a.batch, a.kv_heads, a.keys, a.depth};
  const auto strides = [](const DnnHeads& h) { return Dims{h.batch, h.head, h.token, 1}; };
  const CudnnDescriptor& q = tensor(a.type, of_queries, strides(a.q));
  const CudnnDescriptor& k = tensor(a.type, of_keys, strides(a.k));
  const CudnnDescriptor& v = tensor(a.type, of_keys, strides(a.v));
  const CudnnDescriptor& o = tensor(a.type, of_queries, strides(a.o));
  operations_.push_back(make(CudnnKind::OperationAttention)
                            .set(Attribute::AttentionQ, q)
                            .set(Attribute::AttentionK, k)
                            .set(Attribute::AttentionV, v)
                            .set(Attribute::AttentionO, o)
                            .set(Attribute::AttentionScale, scalar(a.scale))
                            .finalize()
                            .get());
}

}  // namespace tenon::cuda
