#include "tenon/backend/cuda/convolutions/conv_route.h"

#include <algorithm>

#include "tenon/backend/cuda/launches/operands.h"
#include "tenon/backend/cuda/libraries/native_epilogue.h"
#include "tenon/backend/forms.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

// Start of a dense operand, aligned to 16 bytes.
std::optional<LibraryOperand> dense_operand(const Expr& view) {
  const auto matrix = strided_matrices(view, 1);
  if (!matrix || matrix->strides.row != view.shape()[-1]) return std::nullopt;
  return matrix->operand();
}

// Whether the library's own epilogue suffices: a bias of the operands' type, or nothing, stored densely.
bool takes_epilogue(const Form& form, ConvRoute& route) {
  const DType type = route.problem.type;
  const auto epilogue = native_epilogue(form, type, 1);
  if (!epilogue || epilogue->scale != 1 || epilogue->residual) return false;
  if (epilogue->stored.strides.row != route.problem.outputs) return false;
  const auto& bias = epilogue->bias;
  if (bias && (bias->value.dtype() != type || !bias->at || bias->at->offset_bytes % 16)) return false;
  route.operands.push_back(epilogue->stored.operand());
  if (bias) route.operands.push_back(*bias->at);
  route.problem.bias = bias.has_value();
  route.epilogue = epilogue->words();
  return true;
}

}  // namespace

std::optional<ConvRoute> ConvRoute::of(const Form& form, const DnnConv& sizes, const Expr& x, const Expr& w) {
  if (counts_statistics(form) || form.lanes != 1 || form.domain != form.anchor.shape() || form.domain.numel() == 0)
    return std::nullopt;
  const auto image = dense_operand(x), filter = dense_operand(w);
  if (!image || !filter) return std::nullopt;
  ConvRoute out;
  out.problem = sizes;
  out.operands = {*image, *filter};
  if (takes_epilogue(form, out)) return out;
  if (sizes.type != DType::F16) return std::nullopt;
  out.epilogue = "pass";
  out.products = input(*form.graph, "%products", sizes.type, form.domain);
  out.operands.push_back({out.products, 0});
  Memo memo;
  for (const FormOutput& o : form.outputs)
    for (const Expr& e : topological(std::array{o.value}))
      if (acc_lane(e) == 0) memo[e.get()] = cast(out.products, DType::F32);
  for (const FormOutput& o : form.outputs) {
    const Expr value = rebuild(*form.graph, o.value, memo);
    out.pass.push_back({value, o.place, o.dtype});
  }
  return out;
}

}  // namespace tenon::cuda
