#include "tenon/explain/readable.h"

#include "tenon/core/text.h"
#include "tenon/expr/ops.h"

namespace tenon {
namespace {

constexpr int kSum = 1, kProduct = 2, kSign = 3, kAtom = 4;  // precedences
constexpr size_t kLongList = 6, kShownOfLong = 2;            // longer concatenations are abbreviated
constexpr size_t kInlineLength = 28;                         // a longer value that is used twice gets a name

bool moves_elements(const Expr& e) {
  return e.is<nodes::Reshape>() || e.is<nodes::Broadcast>() || e.is<nodes::Permute>() || e.is<nodes::Flip>() ||
         e.is<nodes::PairSwap>() || e.is<nodes::Slice>();
}

// Skips what readers need not see: views that only change how extents are counted, and any views of a constant.
Expr skip_silent(Expr e) {
  while (e.is<nodes::Reshape>() || e.is<nodes::Broadcast>()) e = e->in[0];
  Expr below = e;
  while (moves_elements(below)) below = below->in[0];
  return below.is<nodes::Constant>() ? below : e;
}

std::string list(const std::vector<int64_t>& values, const char* separator) {
  std::string out;
  for (int64_t v : values) out += (out.empty() ? "" : separator) + std::to_string(v);
  return out;
}

struct Infix {
  const char* sign;
  int precedence;
};

const Infix* infix(const Expr& e) {
  static constexpr Infix kAdd{" + ", kSum}, kSub{" - ", kSum}, kMul{" * ", kProduct}, kDiv{" / ", kProduct};
  if (e.is<nodes::Add>()) return &kAdd;
  if (e.is<nodes::Sub>()) return &kSub;
  if (e.is<nodes::Mul>()) return &kMul;
  if (e.is<nodes::Div>()) return &kDiv;
  return nullptr;
}

}  // namespace

ReadableText Readable::print(const Expr& root) {
  uses_.clear();
  named_.clear();
  where_.clear();
  const Expr e = skip_silent(root.is<nodes::Cast>() ? root->in[0] : root);  // the sink's type is printed separately
  for (const Expr& n : topological(std::array{e}))
    for (const Expr& x : n->in) ++uses_[skip_silent(x).get()];
  for (const Expr& n : topological(std::array{e})) {  // do not count a skipped view's own use of its operand
    if (!n.is<nodes::Reshape>() && !n.is<nodes::Broadcast>()) continue;
    --uses_[skip_silent(n).get()];
  }
  std::string main = text(e, 0);
  return {std::move(main), std::move(where_)};
}

std::string Readable::text(const Expr& wrapped, int precedence) {
  const Expr e = skip_silent(wrapped);
  if (const auto it = named_.find(e.get()); it != named_.end()) return it->second;
  if (e->family() == Family::Leaf || uses_[e.get()] < 2) return inline_text(e, precedence);
  std::string whole = inline_text(e, 0);
  if (whole.size() <= kInlineLength) return inline_text(e, precedence);
  const std::string name = "v" + std::to_string(next_++);  // t1, t2, .. are buffers
  where_.push_back(name + " = " + whole);
  return named_[e.get()] = name;
}

std::string Readable::inline_text(const Expr& e, int precedence) {
  switch (e->family()) {
    case Family::Leaf:
      return leaf(e);
    case Family::Pointwise:
      return pointwise(e, precedence);
    case Family::View:
      return view(e);
    case Family::Reduce:
      return call(
          e, std::string(e->name()) + (e->attrs.ints[0] == static_cast<int64_t>(ReduceOver::Inner) ? "_inner" : ""));
    default:
      return call(e, std::string(e->name()));
  }
}

std::string Readable::pointwise(const Expr& e, int precedence) {
  if (e.is<nodes::Mul>() && e->in[0] == e->in[1]) return text(e->in[0], kAtom) + "^2";
  if (e.is<nodes::Fma>()) {
    const std::string out = text(e->in[0], kProduct) + " * " + text(e->in[1], kProduct) + " + " + text(e->in[2], kSum);
    return kSum < precedence ? "(" + out + ")" : out;
  }
  if (const Infix* op = infix(e)) {
    const bool right_binds = e.is<nodes::Sub>() || e.is<nodes::Div>();
    const std::string left = text(e->in[0], op->precedence);
    const std::string out = left + op->sign + text(e->in[1], op->precedence + (right_binds ? 1 : 0));
    return op->precedence < precedence ? "(" + out + ")" : out;
  }
  if (e.is<nodes::Neg>()) {
    const std::string out = "-" + text(e->in[0], kSign);
    return precedence > kSum ? "(" + out + ")" : out;
  }
  if (e.is<nodes::Cast>()) return call(e, std::string(name_of(*e->attrs.dtype)));
  if (e.is<nodes::Round>()) return call(e, "round_" + std::string(name_of(*e->attrs.dtype)));
  return call(e, std::string(e->name()));
}

std::string Readable::call(const Expr& e, const std::string& name) {
  std::string out = name + "(";
  const size_t shown = e->in.size() > kLongList ? kShownOfLong : e->in.size();
  for (size_t i = 0; i < shown; ++i) out += (i ? ", " : "") + text(e->in[i], 0);
  if (shown < e->in.size()) out += ", .. " + std::to_string(e->in.size() - shown) + " more";
  for (double p : e->attrs.nums) out += ", " + number_text(p);
  return out + ")";
}

std::string Readable::view(const Expr& e) {
  const std::vector<int64_t>& ints = e->attrs.ints;
  const int rank = e.shape().rank();
  if (e.is<nodes::Slice>()) {
    const std::string range = std::to_string(ints[1]) + ":" + std::to_string(ints[2]);
    return text(e->in[0], kAtom) + "[" +
           (ints[0] == rank - 1 ? ".., " + range : "axis " + std::to_string(ints[0]) + ", " + range) + "]";
  }
  if (e.is<nodes::Gather>()) return text(e->in[0], kAtom) + "[" + text(e->in[1], 0) + "]";
  std::string out =
      call(e, e.is<nodes::Resize>() && ints[0] == 2 * e->in[0].shape()[1] ? "upsample2x" : std::string(e->name()));
  if (e.is<nodes::Resize>() || ints.empty()) return out;
  const std::string axis = ints[0] == rank - 1 ? "" : "; axis " + std::to_string(ints[0]);
  out.insert(out.size() - 1, e.is<nodes::Concat>() ? axis : "; " + list(ints, " "));
  return out;
}

std::string Readable::leaf(const Expr& e) const {
  if (e.is<nodes::Constant>()) return number_text(e->attrs.nums[0]);
  if (e.is<nodes::Iota>()) return "iota";
  if (e.is<nodes::Param>()) return parameter(e->attrs.text);
  const std::string& name = e->attrs.text;
  return name == acc_name(0) ? "acc" : name.substr(name.starts_with('%') ? 1 : 0);
}

// For a computed parameter, its expression.
std::string Readable::parameter(const std::string& name) const {
  Graph g;
  const Expr value = computation_of(g, name);
  return value ? "{" + Readable(launch_name_).print(value).text + "}" : short_weight(name);
}

std::string Readable::short_weight(const std::string& name) const {
  std::string prefix = launch_name_.substr(0, launch_name_.find_first_of("+#"));
  if (launch_name_.find('+') != std::string::npos)
    prefix.resize(std::min(prefix.size(), prefix.rfind('.')));  // merged siblings
  while (!prefix.empty()) {
    if (name.size() > prefix.size() && name.compare(0, prefix.size(), prefix) == 0 && name[prefix.size()] == '.')
      return name.substr(prefix.size() + 1);
    const size_t dot = prefix.rfind('.');
    prefix.resize(dot == std::string::npos ? 0 : dot);
  }
  return name;
}

std::string anchor_text(const Expr& anchor) {
  if (!anchor) return {};
  if (multiplies_heads(anchor)) {
    const Shape &q = anchor->in[0].shape(), &k = anchor->in[1].shape();
    return std::string(anchor->name()) + " q " + q.str() + " k " + k.str() + (anchor->attrs.ints[0] ? " causal" : "");
  }
  const Shape &x = anchor->in[0].shape(), &w = anchor->in[1].shape();
  if (anchor.is<nodes::Sample>()) return "sample " + x.str();
  if (!anchor.is<nodes::Conv2d>()) return std::string(anchor->name()) + " " + x.str() + " x " + w.str();
  std::string out =
      "conv2d " + std::to_string(w[2]) + "x" + std::to_string(w[3]) + " " + x.str() + " -> " + anchor.shape().str();
  if (anchor->attrs.ints[0] != 1) out += " stride " + std::to_string(anchor->attrs.ints[0]);
  return out;
}

bool counts_keys(const Expr& anchor) { return anchor && anchor.is<nodes::Attention>() && anchor->in.size() > 3; }

double anchor_flops(const Expr& anchor) {
  if (!anchor) return 0;
  const double out = static_cast<double>(anchor.shape().numel());
  if (anchor.is<nodes::Attention>()) {
    const Shape &q = anchor->in[0].shape(), &k = anchor->in[1].shape();
    return out / static_cast<double>(anchor.shape()[3]) * 2.0 * static_cast<double>(k[2]) *
           static_cast<double>(q[3] + anchor.shape()[3]);
  }
  if (is_attention_gradient(anchor)) {  // recomputed scores, the gradient of their weights, then one or two results
    const Shape &q = anchor->in[0].shape(), &k = anchor->in[1].shape(), &v = anchor->in[2].shape();
    const int64_t depths = 2 * q[3] + v[3] + (anchor.is<nodes::AttentionKeyGradient>() ? v[3] : 0);
    return 2.0 * static_cast<double>(q[0] * q[1] * q[2]) * static_cast<double>(k[2] * depths);
  }
  if (anchor.is<nodes::Sample>()) return 0;  // only comparisons
  const Shape& w = anchor->in[1].shape();
  if (anchor.is<nodes::Conv2d>()) return 2.0 * out * static_cast<double>(w[1] * w[2] * w[3]);
  const int64_t branch = anchor.is<nodes::BranchedLinear>() ? anchor->in[2].shape()[-1] : 0;
  return 2.0 * out * static_cast<double>(w[-1] + branch);
}

}  // namespace tenon
