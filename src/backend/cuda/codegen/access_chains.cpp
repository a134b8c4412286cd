// Chains of views that are not affine: coordinates are followed down the chain, a statement a view.
#include <algorithm>

#include "tenon/backend/cuda/codegen/access_text.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

// What stands where a gather's row does not exist: NaN for a load's zero, so that the check of a result finds it.
std::string not_there(std::string outside) {
  const std::string zero = "0.0f";
  const size_t at = outside.find(zero);
  return at == std::string::npos ? outside : outside.replace(at, zero.size(), "bits_to_float(0x7fc00000u)");
}

// True if `run` elements of the last axis, from a multiple of `run` on, lie side by side and aligned in one leaf, or
// are all outside.
bool side_by_side(const Expr& e, int run) {
  const int last = e.shape().rank() - 1;
  if (last < 0 || e.shape()[last] % run) return false;
  if (e->family() == Family::Leaf) return !e.is<nodes::Iota>() && !e.is<nodes::Constant>();
  const Expr& x = e->in[0];
  const auto& ints = e->attrs.ints;
  if (e.is<nodes::Concat>() || e.is<nodes::Reshape>())
    return std::all_of(e->in.begin(), e->in.end(), [run](const Expr& part) { return side_by_side(part, run); });
  bool keeps = e.is<nodes::Resize>();
  if (e.is<nodes::Slice>()) keeps = ints[0] != last || ints[1] % run == 0;
  if (e.is<nodes::Permute>()) keeps = ints.back() == last;
  if (e.is<nodes::Broadcast>()) keeps = x.shape().rank() > 0 && x.shape()[-1] == e.shape()[last];
  if (e.is<nodes::Gather>()) keeps = x.shape().rank() > 1;
  if (e.is<nodes::Pad>()) keeps = ints[2 * static_cast<size_t>(last)] % run == 0;
  return keeps && side_by_side(x, run);
}

}  // namespace

std::string AccessText::load_chain(const std::string& dst, int run) {
  const auto filled = [&](const std::string& into, const std::string& col, const std::string& outside,
                          const auto& read) {
    return mapped("r.row", col, into + " = " + outside + ";", [&](const Expr& leaf, const std::string& index) {
      if (leaf.is<nodes::Iota>()) return into + " = static_cast<float>(" + index + ");";
      if (leaf.is<nodes::Constant>()) return into + " = " + params_.number("constant", leaf->attrs.nums[0]) + ";";
      return into + " = " + read(leaf, index) + ";";
    });
  };
  const auto one = [&](const std::string& into, const std::string& col) {
    return filled(into, col, "0.0f", [this](const Expr& leaf, const std::string& index) {
      return "to_float(" + params_.pointer(leaf, false) + "[" + index + "])";
    });
  };
  if (uniform_) return one(dst, "0");
  const std::string n = std::to_string(run);
  if (side_by_side(view_, run))
    return filled(dst, "col", "splat<" + n + ">(0.0f)", [&](const Expr& leaf, const std::string& index) {
      return "to_floats(load<" + type_text(leaf.dtype()) + ", " + n + ">(" + params_.pointer(leaf, false) + " + " +
             index + "))";
    });
  return "UNROLL for (int k = 0; k < " + n + "; ++k) { " + one(dst + ".v[k]", "(col + k)") + " }";
}

std::string AccessText::store_chain(const std::string& src, int run) {
  const auto one = [&](const std::string& value, const std::string& col) {
    return mapped("r.row", col, "", [&](const Expr& leaf, const std::string& index) {
      return params_.pointer(leaf, true) + "[" + index + "] = from_float<" + type_text(leaf.dtype()) + ">(" + value +
             ");";
    });
  };
  if (uniform_) return one(src, "0");
  return "UNROLL for (int k = 0; k < " + std::to_string(run) + "; ++k) { " + one(src + ".v[k]", "(col + k)") + " }";
}

// Follows coordinates down the chain; `outside` stands where zeros are.
std::string AccessText::follow(const Expr& e, std::vector<std::string> coords, const std::string& outside,
                               const Leaf& leaf) {
  if (e->family() == Family::Leaf) {
    std::string index = "0";
    for (int a = 0; a < e.shape().rank(); ++a)
      if (e.shape()[a] != 1)
        index = plus(index == "0" ? "0" : "(" + index + ") * " + dim(e.shape()[a]), coords[static_cast<size_t>(a)]);
    return leaf(e, index);
  }
  const Expr& x = e->in[0];
  const auto axis = [&] { return static_cast<size_t>(e->attrs.ints[0]); };
  if (e.is<nodes::Slice>()) {
    if (e->attrs.ints[1]) coords[axis()] = "(" + coords[axis()] + " + " + dim(e->attrs.ints[1]) + ")";
    return follow(x, coords, outside, leaf);
  }
  if (e.is<nodes::Permute>()) {
    std::vector<std::string> out(coords.size());
    for (size_t i = 0; i < out.size(); ++i) out[static_cast<size_t>(e->attrs.ints[i])] = coords[i];
    return follow(x, out, outside, leaf);
  }
  if (e.is<nodes::Broadcast>()) {
    coords.erase(coords.begin(), coords.begin() + (e.shape().rank() - x.shape().rank()));
    for (int a = 0; a < x.shape().rank(); ++a)
      if (x.shape()[a] == 1) coords[static_cast<size_t>(a)] = "0";
    return follow(x, coords, outside, leaf);
  }
  if (e.is<nodes::Reshape>()) return follow_reshape(e, coords, outside, leaf);
  if (e.is<nodes::Gather>()) return follow_gather(e, coords, outside, leaf);
  if (e.is<nodes::Resize>()) return follow_resize(e, coords, outside, leaf);
  if (e.is<nodes::Pad>()) return follow_pad(e, coords, outside, leaf);
  if (e.is<nodes::Concat>()) return follow_concat(e, coords, outside, leaf);
  throw Error(ErrorKind::Internal, "cuda", "no text for view " + std::string(e->name()));
}

std::string AccessText::dim(int64_t n) {
  return n == 0 || n == 1 ? std::to_string(n) : params_.integer(name_ + "_dim", n);
}

std::string AccessText::follow_resize(const Expr& e, std::vector<std::string> coords, const std::string& outside,
                                      const Leaf& leaf) {
  const Expr& x = e->in[0];
  for (size_t a = 1; a <= 2; ++a) {
    const int64_t from = x.shape()[static_cast<int>(a)], to = e.shape()[static_cast<int>(a)];
    if (from == to) continue;
    if (to == 2 * from) {
      coords[a] = "(" + coords[a] + " >> 1)";
      continue;
    }
    const float scale = static_cast<float>(from) / static_cast<float>(to);
    coords[a] = "resized(" + coords[a] + ", " + dim(from) + ", " + params_.number(name_ + "_scale", scale) + ")";
  }
  return follow(x, std::move(coords), outside, leaf);
}

std::string AccessText::follow_pad(const Expr& e, std::vector<std::string> coords, const std::string& outside,
                                   const Leaf& leaf) {
  const Expr& x = e->in[0];
  std::string inside, code;
  for (int a = 0; a < x.shape().rank(); ++a) {
    if (e.shape()[a] == x.shape()[a]) continue;
    const std::string c = fresh();
    std::string& at = coords[static_cast<size_t>(a)];
    code += "const int " + c + " = " + at + " - " + dim(e->attrs.ints[2 * static_cast<size_t>(a)]) + "; ";
    inside += (inside.empty() ? "" : " && ") + c + " >= 0 && " + c + " < " + dim(x.shape()[a]);
    at = c;
  }
  return "{ " + code + "if (" + inside + ") { " + follow(x, std::move(coords), outside, leaf) + " } else { " + outside +
         " } }";
}

std::string AccessText::follow_concat(const Expr& e, std::vector<std::string> coords, const std::string& outside,
                                      const Leaf& leaf) {
  std::string out;
  const int axis = static_cast<int>(e->attrs.ints[0]);
  std::string& at = coords[static_cast<size_t>(axis)];
  const std::string whole = at;
  int64_t begin = 0;
  for (size_t i = 0; i < e->in.size(); ++i) {
    const Expr& part = e->in[i];
    const int64_t end = begin + part.shape()[axis];
    at = begin ? "(" + whole + " - " + dim(begin) + ")" : whole;
    if (i) out += " else ";
    if (i + 1 < e->in.size()) out += "if (" + whole + " < " + dim(end) + ") ";
    out += "{ " + follow(part, coords, outside, leaf) + " }";
    begin = end;
  }
  return out;
}

std::string AccessText::follow_reshape(const Expr& e, const std::vector<std::string>& coords,
                                       const std::string& outside, const Leaf& leaf) {
  const Shape &to = e.shape(), &from = e->in[0].shape();
  std::string code = "{ int ", i = fresh();
  std::string linear = "0";
  for (int a = 0; a < to.rank(); ++a)
    if (to[a] != 1)
      linear = linear == "0" ? coords[static_cast<size_t>(a)]
                             : "(" + linear + ") * " + params_.integer(name_ + "_dim", to[a]) + " + " +
                                   coords[static_cast<size_t>(a)];
  code += i + " = " + linear + "; ";
  std::vector<std::string> out(static_cast<size_t>(from.rank()), "0");
  bool outermost = true;
  int first = 0;
  while (first < from.rank() && from[first] == 1) ++first;
  for (int a = from.rank(); a-- > first;) {
    if (from[a] == 1) continue;
    outermost = a == first;
    const std::string c = fresh();
    if (outermost) {
      code += "const int " + c + " = " + i + "; ";
    } else {
      const std::string d = params_.divisor(name_ + "_extent", from[a]), q = fresh();
      code += "const int " + q + " = " + i + " / " + d + ", " + c + " = " + i + " - " + q + " * static_cast<int>(" + d +
              ".divisor); " + i + " = " + q + "; ";
    }
    out[static_cast<size_t>(a)] = c;
  }
  return code + follow(e->in[0], out, outside, leaf) + " }";
}

std::string AccessText::follow_gather(const Expr& e, const std::vector<std::string>& coords, const std::string& outside,
                                      const Leaf& leaf) {
  const Expr &x = e->in[0], &index = e->in[1];
  const size_t lead = static_cast<size_t>(index.shape().rank());
  const std::string row = fresh(), type = type_text(index.dtype());  // not cut before it is compared
  const std::vector<std::string> at(coords.begin(), coords.begin() + static_cast<std::ptrdiff_t>(lead));
  std::string code =
      "{ " + type + " " + row + " = 0; " + follow(index, at, row + " = 0;", [&](const Expr& l, const std::string& i) {
        if (l.is<nodes::Iota>()) return row + " = " + i + ";";
        return row + " = " + params_.pointer(l, false) + "[" + i + "];";
      });
  if (x.shape()[0] == 0) return code + not_there(outside) + " }";
  // For a row that is not there the nearest is read: a load behind a branch would wait for the one before it.
  const std::string near = fresh(), dim = params_.integer(name_ + "_dim", x.shape()[0]);
  std::vector<std::string> out = {near};
  out.insert(out.end(), coords.begin() + static_cast<std::ptrdiff_t>(lead), coords.end());
  return code + " const int " + near + " = " + row + " < 0 ? 0 : " + row + " < " + dim + " ? static_cast<int>(" + row +
         ") : " + dim + " - 1; " + follow(x, out, outside, leaf) + " if (" + near + " != " + row + ") { " +
         not_there(outside) + " } }";
}

std::string AccessText::mapped(const std::string& row, const std::string& col, const std::string& outside,
                               const Leaf& leaf) {
  const Shape& shape = domain_.shape;
  std::vector<std::string> coords(static_cast<size_t>(shape.rank()), "0");
  std::string code;
  const auto split = [&](const std::string& index, int begin, int end) {
    std::string rest = index;
    for (int a = end; a-- > begin;) {
      if (product(shape, begin, a) == 1) {
        coords[static_cast<size_t>(a)] = rest;
        break;
      }
      if (shape[a] == 1) continue;
      const std::string d = params_.divisor(name_ + "_extent", shape[a]), q = fresh(), c = fresh();
      code += "const int " + q + " = " + rest + " / " + d + ", " + c + " = " + rest + " - " + q +
              " * static_cast<int>(" + d + ".divisor); ";
      coords[static_cast<size_t>(a)] = c;
      rest = q;
    }
  };
  split(row, 0, domain_.split);
  split(col, domain_.split, shape.rank());
  const int lead = shape.rank() - view_.shape().rank();
  std::vector<std::string> inner(coords.begin() + lead, coords.end());
  for (int a = 0; a < view_.shape().rank(); ++a)
    if (view_.shape()[a] == 1) inner[static_cast<size_t>(a)] = "0";
  return "{ " + code + follow(view_, inner, outside, leaf) + " }";
}

}  // namespace tenon::cuda
