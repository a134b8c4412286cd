#include "tenon/backend/cuda/products/matmul_route.h"

#include <array>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {

std::optional<MatmulRoute> MatmulRoute::of(const Form& form, const Expr& a, const Expr& b, int64_t batch) {
  const DType type = a.dtype();
  const auto epilogue = native_epilogue(form, type, batch);
  if (!epilogue) return std::nullopt;
  const auto left = strided_matrices(a, batch), right = strided_matrices(b, batch);
  if (!left || !right) return std::nullopt;
  MatmulRoute out;
  out.epilogue_ = epilogue->words();
  MatmulProblem& p = out.problem_;
  p.type = type;
  p.m = a.shape().rows() / batch;
  p.n = b.shape().rows() / batch;
  p.k = a.shape()[-1];
  p.batch = batch;
  p.a = left->strides;
  p.b = right->strides;
  p.d = epilogue->stored.strides;
  p.alpha = static_cast<float>(epilogue->scale);
  p.bias = epilogue->bias.has_value();
  out.operands_ = {left->operand(), right->operand(), epilogue->stored.operand()};
  if (epilogue->residual) {
    p.c = epilogue->residual->strides;
    p.beta = static_cast<float>(epilogue->residual_scale);
    out.operands_.push_back(epilogue->residual->operand());
  }
  if (!epilogue->bias) return out;
  const ColumnVector& bias = *epilogue->bias;
  if (bias.value.dtype() == type && bias.at && bias.at->offset_bytes % 16 == 0) {
    out.operands_.push_back(*bias.at);
    return out;
  }
  out.bias_ = {input(*form.graph, "%bias", type, {p.n}), bias.value};
  out.operands_.push_back({out.bias_.leaf, 0});
  return out;
}

TunedCall MatmulRoute::call(Device& device, const std::string& name, const MatmulAlgorithm& algorithm,
                            bool fill_bias) const {
  MatmulLibrary* const library = device.matmul_library();
  std::shared_ptr<LibraryCall> call = library ? library->plan(problem_, algorithm) : nullptr;
  TENON_CHECK(Internal, call != nullptr, name) << "cublaslt " << algorithm.text() << " was chosen but cannot run";
  CallNeeds needs;
  needs.workspace_bytes = call->workspace_bytes();
  TunedCall out{KernelCall(device, name + " " + library->describe(algorithm), std::move(call), operands_), needs};
  if (fill_bias) {
    const ProgramOutput filled{bias_.value, bias_.leaf, problem_.type};
    out.before.push_back(plain_call(device, name + " bias", std::array{filled}, bias_.leaf.shape()));
  }
  return out;
}

}  // namespace tenon::cuda
