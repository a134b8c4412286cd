#include "tenon/plan/precision.h"

#include <algorithm>
#include <unordered_set>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"

namespace tenon {
namespace {

using Rule = PrecisionPolicy::Rule;
constexpr std::string_view kRules[] = {"operands", "f32", "bf16", "f16", "e4m3 rows", "i8 weights", "i8 blocks"};

Rule parse_rule(std::string_view text) {
  const std::string_view name = trimmed(text);
  const auto* it = std::ranges::find(kRules, name == "e4m3" ? "e4m3 rows" : name == "int8" ? "i8 weights" : name);
  TENON_CHECK(Usage, it != std::end(kRules), "precision")
      << "'" << shown(name)
      << "' is none of operands, f32, bf16, f16, e4m3 rows (or e4m3), i8 weights (or int8) and i8 blocks";
  return static_cast<Rule>(it - std::begin(kRules));
}

bool made_of(const Expr& weight, const std::string& name) {
  return std::ranges::any_of(topological(std::array{weight}), [&](const Expr& e) {
    return e.is<nodes::Param>() && e->attrs.text.find(name) != std::string::npos;
  });
}

// Only operands that are weights identify a layer: below the others is the rest of the model.
Rule rule_of(const Expr& anchor, const PrecisionPolicy& policy) {
  for (const PrecisionPolicy::Exception& e : policy.exceptions)
    for (const Expr& x : anchor->in)
      if (x->rate == Rate::Constant && made_of(x, e.name)) return e.rule;
  return policy.rule;
}

Expr rounded_to(const Expr& anchor, DType t) {
  std::vector<Expr> in = anchor->in;
  for (Expr& x : std::span(in).first(static_cast<size_t>(anchor->type->factors)))
    x = holds(t, x.dtype()) ? x : cast(x, t);
  return multiplied_in(anchor.graph().make(*anchor->type, in, anchor->attrs), t);
}

bool multiplies_rows_by_weights(const Expr& anchor) {
  return anchor.is<nodes::Linear>() && anchor->in[1].shape().rank() == 2 && anchor->in[1]->rate == Rate::Constant &&
         std::ranges::all_of(anchor->in, [](const Expr& x) { return is_float(x.dtype()); });
}

Expr scaled_columns(const Expr& y, const Expr& scale) { return y * reshape(scale, {scale.shape()[0]}); }
QuantizedRows quantized(const Expr& x) { return x.dtype() == DType::E4M3 ? QuantizedRows{x, {}} : quantize_rows(x); }

// Matrices whose rows are quantised for a product that reads them untransposed.
struct Matrices {
  std::unordered_set<const Node*> all;
  bool copied;  // into memory, for products that read them transposed
};

bool transposed_of(const Expr& w, const Matrices& matrices) {
  return w.is<nodes::Permute>() && w.shape().rank() == 2 && matrices.all.contains(w->in[0].get());
}

// Concatenated tensors of one shape, or x alone.
std::vector<Expr> equal_parts(const Expr& x) {
  std::vector<Expr> out{x};
  while (out.back().is<nodes::Concat>() && out.back()->attrs.ints[0] == x.shape().rank() - 1) {
    const std::vector<Expr> in = out.back()->in;
    out.pop_back();
    out.insert(out.end(), in.begin(), in.end());
  }
  const bool equal = std::ranges::all_of(out, [&](const Expr& p) { return p.shape() == out[0].shape(); });
  return equal ? out : std::vector{x};
}

// Quantised rows of x, times `columns` if given. Concatenated tensors are quantised separately with a common scale, so
// that they need not be joined in memory.
QuantizedRows quantized_parts(const Expr& x, const Expr& columns) {
  if (x.dtype() == DType::E4M3 && !columns) return {x, {}};
  std::vector<Expr> parts = equal_parts(x);
  const int64_t width = parts[0].shape()[-1];
  for (size_t i = 0; columns && i < parts.size(); ++i) {
    const auto at = static_cast<int64_t>(i) * width;
    parts[i] = scaled_columns(parts[i], slice(columns, 0, at, at + width));
  }
  return quantize_rows(parts);
}

Expr of_quantized_rows(const Expr& anchor, const Matrices& matrices) {
  QuantizedRows w, rows;
  if (transposed_of(anchor->in[1], matrices)) {  // w = (s q)^T: x w^T = (x s) q, with the q of the other product
    rows = quantized(anchor->in[1]->in[0]);
    w.q = matrices.copied ? materialize(transpose(rows.q)) : transpose(rows.q);
  } else {
    w = quantized(anchor->in[1]);
  }
  const QuantizedRows x = quantized_parts(anchor->in[0], rows.scale);
  Expr y = multiplied_in(linear(x.q, w.q), DType::E4M3);
  if (x.scale) y = y * x.scale;
  return w.scale ? scaled_columns(y, w.scale) : y;
}

Expr of_quantized_weights(const Expr& anchor) {
  const QuantizedRows w = quantize_rows(anchor->in[1], DType::I8);
  const Expr y = linear(anchor->in[0], w.q);
  return scaled_columns(multiplied_in(y, arithmetic_of_operands(y)), w.scale);
}

Expr with_arithmetic(const Expr& anchor, Rule rule, const Matrices& matrices) {
  const bool rows = multiplies_rows_by_weights(anchor);
  if (rule == Rule::E4m3Rows && rows) return of_quantized_rows(anchor, matrices);
  if (rule == Rule::I8Weights && rows && size_of(anchor->in[1].dtype()) > 1) return of_quantized_weights(anchor);
  if (rule == Rule::I8Blocks && rows) return multiplied_in(anchor, DType::I8);
  if (rule == Rule::BF16 || rule == Rule::E4m3Rows) return rounded_to(anchor, DType::BF16);
  if (rule == Rule::F16) return rounded_to(anchor, DType::F16);
  if (rule == Rule::F32) return multiplied_in(anchor, DType::F32);
  return multiplied_in(anchor, arithmetic_of_operands(anchor));
}

}  // namespace

std::string PrecisionPolicy::text() const {
  const auto name = [](Rule r) { return std::string(kRules[static_cast<size_t>(r)]); };
  std::string out = name(rule);
  for (const Exception& e : exceptions) out += ", " + name(e.rule) + ": " + e.name;
  return out;
}

bool PrecisionPolicy::follows(Rule r) const {
  return rule == r || std::ranges::find(exceptions, r, &Exception::rule) != exceptions.end();
}

PrecisionPolicy PrecisionPolicy::parse(std::string_view text) {
  PrecisionPolicy out;
  size_t comma = std::min(text.find(','), text.size());
  out.rule = parse_rule(text.substr(0, comma));
  while (comma < text.size()) {
    text.remove_prefix(comma + 1);
    comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    const size_t colon = std::min(item.find(':'), item.size());
    const std::string_view name = trimmed(item.substr(std::min(colon + 1, item.size())));
    TENON_CHECK(Usage, !name.empty(), "precision")
        << "'" << shown(item) << "': expected a rule and part of a weight's name, such as bf16: t_embedder";
    out.exceptions.push_back({parse_rule(item.substr(0, colon)), std::string(name)});
  }
  return out;
}

DType arithmetic_of_operands(const Expr& anchor) {
  const auto factors = static_cast<size_t>(anchor->type->factors);
  const auto all = [&](const auto& fits) {
    return std::ranges::all_of(std::span(anchor->in).first(factors), fits, &Expr::dtype);
  };
  if (anchor.is<nodes::Linear>() && all([](DType t) { return t == DType::E4M3; })) return DType::E4M3;
  for (const DType t : {DType::F16, DType::BF16})
    if (all([&](DType x) { return x == t || (holds(t, x) && !multiplies_heads(anchor)); })) return t;
  return DType::F32;
}

std::vector<Expr> set_precision(Graph& g, std::span<const Expr> roots, const PrecisionPolicy& policy, bool copies) {
  Matrices matrices{{}, copies};
  for (const Expr& e : topological(roots))
    if (multiplies_rows_by_weights(e) && rule_of(e, policy) == Rule::E4m3Rows) matrices.all.insert(e->in[1].get());
  const Replace set = [&](const Expr& e, std::span<const Expr> in) -> Expr {
    if (e->family() != Family::Anchor || arithmetic_of(e)) return {};
    return with_arithmetic(g.make(*e->type, in, e->attrs), rule_of(e, policy), matrices);
  };
  return rebuild(g, roots, set);
}

}  // namespace tenon
