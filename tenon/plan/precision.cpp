#include "tenon/plan/precision.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"

namespace tenon {
namespace {

using Rule = PrecisionPolicy::Rule;
constexpr std::string_view kRules[] = {"operands", "f32", "bf16", "f16", "e4m3 rows"};

std::string_view trimmed(std::string_view s) {
  while (s.starts_with(' ')) s.remove_prefix(1);
  while (s.ends_with(' ')) s.remove_suffix(1);
  return s;
}

Rule parse_rule(std::string_view text) {
  const auto* it = std::ranges::find(kRules, trimmed(text));
  TENON_CHECK(Usage, it != std::end(kRules), "precision")
      << "'" << shown(text) << "' is none of operands, f32, bf16, f16 and e4m3 rows";
  return static_cast<Rule>(it - std::begin(kRules));
}

bool made_of(const Expr& weight, const std::string& name) {
  return std::ranges::any_of(topological(std::array{weight}), [&](const Expr& e) {
    return e.is<nodes::Param>() && e->attrs.text.find(name) != std::string::npos;
  });
}

// Only operands that are weights say which layer an anchor is: behind the others lies the rest of the model.
Rule rule_of(const Expr& anchor, const PrecisionPolicy& policy) {
  for (const PrecisionPolicy::Exception& e : policy.exceptions)
    for (const Expr& x : anchor->in)
      if (x->rate == Rate::Constant && made_of(x, e.name)) return e.rule;
  return policy.rule;
}

Expr rounded_to(const Expr& anchor, DType t) {
  std::vector<Expr> in;
  for (const Expr& x : anchor->in)
    in.push_back(static_cast<int>(in.size()) >= anchor->type->factors || holds(t, x.dtype()) ? x : cast(x, t));
  return multiplied_in(anchor.graph().make(*anchor->type, in, anchor->attrs), t);
}

bool multiplies_rows_by_weights(const Expr& anchor) {
  return anchor.is<nodes::Linear>() && anchor->in[1].shape().rank() == 2 && anchor->in[1]->rate == Rate::Constant &&
         std::ranges::all_of(anchor->in, [](const Expr& x) { return is_float(x.dtype()); });
}

Expr of_quantized_rows(const Expr& anchor) {
  const auto quantized = [](const Expr& x) {
    return x.dtype() == DType::E4M3 ? QuantizedRows{x, {}} : quantize_rows(x);
  };
  const QuantizedRows x = quantized(anchor->in[0]), w = quantized(anchor->in[1]);
  Expr y = multiplied_in(linear(x.q, w.q), DType::E4M3);
  if (x.scale) y = y * x.scale;
  return w.scale ? y * reshape(w.scale, {w.scale.shape()[0]}) : y;
}

Expr with_arithmetic(const Expr& anchor, Rule rule) {
  switch (rule) {
    case Rule::F32:
      return multiplied_in(anchor, DType::F32);
    case Rule::BF16:
      return rounded_to(anchor, DType::BF16);
    case Rule::F16:
      return rounded_to(anchor, DType::F16);
    case Rule::E4m3Rows:
      if (multiplies_rows_by_weights(anchor)) return of_quantized_rows(anchor);
      break;
    case Rule::Operands:
      break;
  }
  return multiplied_in(anchor, arithmetic_of_operands(anchor));
}

}  // namespace

std::string PrecisionPolicy::text() const {
  const auto name = [](Rule r) { return std::string(kRules[static_cast<size_t>(r)]); };
  std::string out = name(rule);
  for (const Exception& e : exceptions) out += ", " + name(e.rule) + ": " + e.name;
  return out;
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
        << "'" << shown(item)
        << "' is no exception: expected a rule and a part of weights' names, such as bf16: t_embedder";
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
  const bool widens = !anchor.is<nodes::Attention>();
  for (const DType t : {DType::F16, DType::BF16})
    if (all([&](DType x) { return x == t || (widens && holds(t, x)); })) return t;
  return DType::F32;
}

std::vector<Expr> set_precision(Graph& g, std::span<const Expr> roots, const PrecisionPolicy& policy) {
  const Replace set = [&](const Expr& e, std::span<const Expr> in) -> Expr {
    if (e->family() != Family::Anchor || arithmetic_of(e)) return {};
    return with_arithmetic(g.make(*e->type, in, e->attrs), rule_of(e, policy));
  };
  std::vector<Expr> out;
  Memo memo;
  for (const Expr& r : roots) out.push_back(rebuild(g, r, set, memo));
  return out;
}

}  // namespace tenon
