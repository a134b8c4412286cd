#include "tenon/backend/cuda/libraries/native_epilogue.h"

#include <algorithm>

#include "tenon/backend/affine.h"
#include "tenon/backend/cuda/launches/anchor_kernel.h"
#include "tenon/backend/forms.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cuda {
namespace {

constexpr int64_t kFragment = 8;  // elements in 16 bytes

// The single piece of a view, if its columns are contiguous.
std::optional<AffinePiece> piece_of(const Expr& view) {
  if (!is_view_chain(view) || view.shape().rank() == 0 || view.shape().numel() == 0) return std::nullopt;
  const auto pieces = affine_pieces(view, view.shape(), view.shape().rank() - 1);
  if (!pieces || pieces->size() != 1) return std::nullopt;
  const AffinePiece& p = pieces->front();
  if (!p.leaf || p.cols.size() != 1 || p.cols[0].stride != 1) return std::nullopt;
  return p;
}

std::optional<ColumnVector> column_vector(const Expr& view) {
  const int64_t columns = view.shape()[-1];
  if (!is_view_chain(view) || !is_float(view.dtype())) return std::nullopt;
  Expr value = view.is<nodes::Broadcast>() ? view->in[0] : view;
  if (value.shape().numel() != columns || value.shape().rank() == 0 || value.shape()[-1] != columns)
    return std::nullopt;
  value = reshape(value, {columns});
  const std::optional<AffinePiece> p = piece_of(value);
  if (!p) return ColumnVector{value, {}};
  return ColumnVector{value, LibraryOperand{p->leaf, p->offset * size_of(p->leaf.dtype())}};
}

// Splits a sum into the terms that a library adds.
class Terms {
 public:
  Terms(const Shape& domain, DType type, int64_t batch) : domain_(domain), type_(type), batch_(batch) {}
  bool add(const Expr& e, double factor) {
    if (e.is<nodes::Add>()) return add(e->in[0], factor) && add(e->in[1], factor);
    if (e.is<nodes::Mul>())
      for (const int literal : {0, 1})
        if (const Node* number = literal_of(e->in[static_cast<size_t>(literal)]))
          return add(e->in[static_cast<size_t>(1 - literal)], factor * number->attrs.nums[0]);
    if (e.shape() != domain_ || literal_of(e)) return false;
    if (acc_lane(e) == 0) {
      if (acc_) return false;
      acc_ = true;
      found.scale = factor;
      return true;
    }
    const bool widens = e.is<nodes::Cast>() && e.dtype() == DType::F32;  // a cast that changes nothing
    return leaf(widens ? e->in[0] : e, factor);
  }
  bool complete() const { return acc_; }

  NativeEpilogue found;

 private:
  bool leaf(const Expr& e, double factor) {
    if (!found.bias && factor == 1)
      if ((found.bias = column_vector(e))) return true;
    // A factor of zero would drop infinities and NaN: the library does not read an operand scaled by zero.
    if (found.residual || e.dtype() != type_ || static_cast<float>(factor) == 0) return false;
    found.residual = strided_matrices(e, batch_);
    found.residual_scale = factor;
    return found.residual.has_value();
  }

  Shape domain_;
  DType type_;
  int64_t batch_;
  bool acc_ = false;
};

}  // namespace

std::optional<StridedMatrices> strided_matrices(const Expr& view, int64_t batch) {
  const std::optional<AffinePiece> p = piece_of(view);
  if (!p || size_of(p->leaf.dtype()) != 2) return std::nullopt;
  const int64_t columns = view.shape()[-1], rows = view.shape().rows() / batch;
  MatrixStrides strides;
  if (p->rows.size() == 1)
    strides = {p->rows[0].stride, p->rows[0].stride * rows};
  else if (p->rows.size() == 2 && p->rows[1].extent == rows)
    strides = {p->rows[1].stride, p->rows[0].stride};
  else
    return std::nullopt;
  if (rows == 1) strides.row = columns;
  const auto whole = [](int64_t elements) { return elements % kFragment == 0; };
  const bool apart = strides.row >= columns && (batch == 1 || strides.batch > 0);
  if (!apart || !whole(columns) || !whole(strides.row) || !whole(p->offset) || (batch > 1 && !whole(strides.batch)))
    return std::nullopt;
  return StridedMatrices{p->leaf, p->offset, strides};
}

std::string NativeEpilogue::words() const {
  std::string out = bias ? "bias" : "";
  if (residual) out += bias ? " residual" : "residual";
  return out.empty() ? "plain" : out;
}

std::optional<NativeEpilogue> native_epilogue(const Form& form, DType type, int64_t batch) {
  if (form.outputs.size() != 1 || form.lanes != 1 || form.domain.numel() == 0) return std::nullopt;
  const FormOutput& out = form.outputs.front();
  if (out.statistic || out.dtype != type) return std::nullopt;
  Terms terms(form.domain, type, batch);
  if (!terms.add(without_rounding(out.value, type), 1) || !terms.complete()) return std::nullopt;
  const auto stored = strided_matrices(out.place, batch);
  if (!stored) return std::nullopt;
  terms.found.stored = *stored;
  return terms.found;
}

}  // namespace tenon::cuda
