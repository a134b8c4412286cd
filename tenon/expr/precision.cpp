#include "tenon/expr/precision.h"

#include "tenon/expr/ops.h"

namespace tenon {

bool holds(DType arithmetic, DType t) {
  if (arithmetic == t || arithmetic == DType::F32) return true;
  return (t == DType::E4M3 || t == DType::I8) && (arithmetic == DType::F16 || arithmetic == DType::BF16);
}

std::optional<DType> arithmetic_of(const Expr& anchor) { return anchor->attrs.dtype; }

Expr multiplied_in(const Expr& anchor, DType arithmetic) {
  TENON_CHECK(Usage, anchor->family() == Family::Anchor, std::string(anchor->name()))
      << "is not an anchor, so it has no arithmetic type";
  Attrs attrs = anchor->attrs;
  attrs.dtype = arithmetic;
  return anchor.graph().make(*anchor->type, anchor->in, std::move(attrs));
}

Expr with_operands(const Expr& anchor, std::initializer_list<Expr> in) {
  return anchor.graph().make(*anchor->type, std::span(in.begin(), in.size()), anchor->attrs);
}

QuantizedRows quantize_rows(const Expr& x, DType t) { return quantize_rows(std::vector{x}, t); }

QuantizedRows quantize_rows(const std::vector<Expr>& parts, DType t) {
  TENON_CHECK(Usage, t == DType::E4M3 || t == DType::I8, "quantize_rows") << "expected e4m3 or i8, got " << name_of(t);
  TENON_CHECK(Usage, !parts.empty(), "quantize_rows") << "needs an operand";
  const bool whole = t == DType::I8;
  Expr most;
  for (const Expr& x : parts) most = most ? max(most, absmax(x)) : absmax(x);
  const Expr scale = max(most, constant(parts[0].graph(), 1e-12)) / (whole ? 127.0 : 448.0);
  std::vector<Expr> q;
  for (const Expr& x : parts) q.push_back(cast(whole ? floor(x / scale + 0.5) : x / scale, t));
  return {q.size() > 1 ? concat(q, -1) : q[0], scale};
}

}  // namespace tenon
