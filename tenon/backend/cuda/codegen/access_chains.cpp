// Chains of views that are not affine: coordinates are followed down the chain as source, one or two statements per
// view.
#include <algorithm>
#include <numeric>
#include <utility>

#include "tenon/backend/cuda/codegen/access_source.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

bool is_memory(const Expr& leaf) { return !leaf.is<nodes::Iota>() && !leaf.is<nodes::Constant>(); }

// What is known about an index over the elements of a fragment: it is constant or grows by one per element, and its
// first value is a multiple of `multiple` (0: it is 0).
struct InFragment {
  bool grows = false;
  int64_t multiple = 1;
};

// Whether `width` elements of the last axis, starting at a multiple of `width`, are contiguous and aligned in one leaf,
// or all outside.
class SideBySide final : public SymbolicAlgebra<InFragment> {
 public:
  explicit SideBySide(int width) : width_(width) {}

  bool operator()(const Expr& view) {
    const int last = view.shape().rank() - 1;
    if (last < 0 || view.shape()[last] % width_) return false;
    Indices c;
    c.fill(hold({}));
    c[static_cast<size_t>(last)] = hold({true, width_});
    follow(view, c);
    return good_;
  }

  Index number(int64_t n) override { return hold({false, n}); }
  Index times(Index i, int64_t n) override {
    if (held(i).grows && n != 1) return unknown();
    return hold({held(i).grows, held(i).multiple * n});
  }
  Index sum(Index i, Index j) override {
    if (held(i).grows && held(j).grows) return unknown();
    return hold({held(i).grows || held(j).grows, std::gcd(held(i).multiple, held(j).multiple)});
  }
  Index reversed(Index i, int64_t) override { return held(i).grows ? unknown() : hold({}); }
  Divided divided(Index i, int64_t n) override {
    const InFragment v = held(i);
    if (v.grows && (n % width_ || v.multiple % width_)) return {unknown(), unknown()};
    const int64_t quotient = n && v.multiple % n == 0 ? v.multiple / n : 1;
    return {hold({false, quotient}), hold({v.grows, std::gcd(v.multiple, n)})};
  }
  Index nearest(Index i, int64_t, int64_t) override { return held(i).grows ? unknown() : hold({}); }
  Index inside(Index i, int64_t begin, int64_t extent) override {
    good_ = good_ && !(held(i).grows && (begin % width_ || extent % width_));
    return plus(i, begin);
  }
  void part(Index i, std::span<const int64_t> extents, InPart body) override {
    int64_t begin = 0;
    for (size_t k = 0; k < extents.size(); begin += extents[k++]) {
      good_ = good_ && !(held(i).grows && extents[k] % width_);
      body(static_cast<int>(k), plus(i, begin));
    }
  }
  Index look_up(int operand, const Indices& c, int64_t) override {
    for (int a = 0; a < view_->in[static_cast<size_t>(operand)].shape().rank(); ++a)
      if (held(c[static_cast<size_t>(a)]).grows) return unknown();
    return hold({});
  }
  void read(int operand, const Indices& c) override { follow(view_->in[static_cast<size_t>(operand)], c); }

 private:
  Index unknown() {
    good_ = false;
    return hold({});
  }
  void follow(const Expr& e, const Indices& c) {
    if (!good_) return;
    if (e->family() == Family::Leaf) {
      const int last = e.shape().rank() - 1;
      good_ = is_memory(e) && last >= 0 && e.shape()[last] % width_ == 0;
      for (int a = 0; a <= last; ++a) {
        const InFragment v = held(c[static_cast<size_t>(a)]);
        good_ = good_ && v.grows == (a == last) && !(v.grows && v.multiple % width_);
      }
      return;
    }
    const Node* view = std::exchange(view_, e.get());
    e->type->map(*e, *this, c);
    view_ = view;
  }

  int width_;
  bool good_ = true;
  const Node* view_ = nullptr;
};

bool side_by_side(const Expr& e, int width) { return SideBySide(width)(e); }

}  // namespace

bool AccessSource::found_side_by_side(int width) const { return width > 1 && side_by_side(view_, width); }

std::string AccessSource::load_chain(const std::string& dst, int width, bool stored) {
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
  const std::string n = std::to_string(width);
  if (side_by_side(view_, width)) {
    const std::string zeros = "splat<" + n + ">(0.0f)";
    return filled(dst, "col", stored ? "from_floats<" + type_source(dtype()) + ">(" + zeros + ")" : zeros,
                  [&](const Expr& leaf, const std::string& index) {
                    const std::string load = loader_ + ("<" + type_source(leaf.dtype())) + ", " + n + ">(" +
                                             params_.pointer(leaf, false) + " + " + index + ")";
                    return stored ? load : "to_floats(" + load + ")";
                  });
  }
  return "UNROLL for (int k = 0; k < " + n + "; ++k) { " + one(dst + ".v[k]", "(col + k)") + " }";
}

std::string AccessSource::store_chain(const std::string& src, int width) {
  const auto one = [&](const std::string& value, const std::string& col) {
    return mapped("r.row", col, "", [&](const Expr& leaf, const std::string& index) {
      return params_.pointer(leaf, true) + "[" + index + "] = from_float<" + type_source(leaf.dtype()) + ">(" + value +
             ");";
    });
  };
  if (uniform_) return one(src, "0");
  return "UNROLL for (int k = 0; k < " + std::to_string(width) + "; ++k) { " + one(src + ".v[k]", "(col + k)") + " }";
}

// Indices are source: sums of names, numbers and products.
class AccessSource::Chain final : public SymbolicAlgebra<std::string> {
 public:
  Chain(AccessSource& access, std::string outside, Leaf leaf)
      : access_(access), params_(access.params_), outside_(std::move(outside)), leaf_(std::move(leaf)) {}

  /// Statements for the element of `e` at `coords`.
  std::string source(const Expr& e, std::span<const std::string> coords) {
    Indices c{};
    for (size_t a = 0; a < coords.size(); ++a) c[a] = hold(coords[a]);
    follow(e, c);
    return code_;
  }

  Index number(int64_t n) override { return hold(access_.dim(n)); }
  Index plus(Index i, int64_t n) override {
    if (n == 0) return i;
    if (n < 0) return hold("(" + held(i) + " - " + access_.dim(-n) + ")");
    return hold("(" + held(i) + " + " + access_.dim(n) + ")");
  }
  Index times(Index i, int64_t n) override {
    if (n == 1 || held(i) == "0") return i;
    return n == 0 ? number(0) : hold("(" + held(i) + ") * " + access_.dim(n));
  }
  Index sum(Index i, Index j) override { return hold(tenon::cuda::plus(held(i), held(j))); }
  Index reversed(Index i, int64_t n) override { return hold("(" + access_.dim(n - 1) + " - (" + held(i) + "))"); }
  Divided divided(Index i, int64_t n) override {
    const std::string x = held(i), q = access_.fresh(), r = access_.fresh();
    if (x == "0") return {i, i};
    const std::string whole = access_.fresh(), d = params_.divisor(access_.name_ + "_extent", n);
    code_ += "const int " + whole + " = " + x + ", " + q + " = " + whole + " / " + d + ", " + r + " = " + whole +
             " - " + q + " * static_cast<int>(" + d + ".divisor); ";
    return {hold(q), hold(r)};
  }
  Divided halved(Index i) override {
    const bool name = held(i).find(' ') == std::string::npos;
    const std::string x = name ? held(i) : "(" + held(i) + ")";
    return {hold("(" + x + " >> 1)"), hold("(" + x + " & 1)")};
  }
  Index nearest(Index i, int64_t from, int64_t to) override {
    const float scale = static_cast<float>(from) / static_cast<float>(to);
    return hold("resized(" + held(i) + ", " + access_.dim(from) + ", " +
                params_.number(access_.name_ + "_scale", scale) + ")");
  }

  Index inside(Index i, int64_t begin, int64_t extent) override {
    const std::string c = access_.fresh();
    code_ += "const int " + c + " = " + held(i) + " - " + access_.dim(begin) + "; ";
    inside_ += (inside_.empty() ? "" : " && ") + c + " >= 0 && " + c + " < " + access_.dim(extent);
    return hold(c);
  }
  void part(Index i, std::span<const int64_t> extents, InPart body) override {
    check_inside();
    const std::string end = std::exchange(end_, {});
    int64_t begin = 0;
    for (size_t k = 0; k < extents.size(); begin += extents[k++]) {
      if (k) code_ += " else ";
      if (k + 1 < extents.size()) code_ += "if (" + held(i) + " < " + access_.dim(begin + extents[k]) + ") ";
      code_ += "{ ";
      body(static_cast<int>(k), plus(i, -begin));
      code_ += std::exchange(end_, {}) + " }";
    }
    end_ = end;
  }
  // An out-of-range index is clamped: a load behind a branch would wait for the previous load.
  Index look_up(int operand, const Indices& c, int64_t extent) override {
    check_inside();
    const Expr& numbers = view_->in[static_cast<size_t>(operand)];
    if (extent > 0 && numbers.shape().numel() == 1 && numbers->family() == Family::Leaf && is_memory(numbers) &&
        !params_.in_shared(numbers))
      return look_up_once(numbers, extent);
    const std::string n = access_.fresh(), type = type_source(numbers.dtype());  // not truncated before it is compared
    const auto load = [&](const Expr& l, const std::string& at) {
      return n + " = " + (l.is<nodes::Iota>() ? at : params_.pointer(l, false) + "[" + at + "]") + ";";
    };
    code_ += type + " " + n + " = 0; ";
    const std::string outside = std::exchange(outside_, n + " = 0;");
    const Leaf leaf = std::exchange(leaf_, load);
    follow(numbers, c);
    outside_ = outside;
    leaf_ = leaf;
    if (extent == 0) {
      nothing_ = true;
      return number(0);
    }
    const std::string near = access_.fresh(), dim = params_.integer(access_.name_ + "_dim", extent);
    code_ += " const int " + near + " = " + n + " < 0 ? 0 : " + n + " < " + dim + " ? static_cast<int>(" + n +
             ") : " + dim + " - 1; ";
    end_ = " if (" + near + " != " + n + ") { " + not_there() + " }" + end_;
    return hold(near);
  }
  void read(int operand, const Indices& c) override {
    check_inside();
    if (nothing_)
      code_ += not_there();
    else
      follow(view_->in[static_cast<size_t>(operand)], c);
  }

 private:
  // An index that is the same for all elements of the launch is read with the row state.
  Index look_up_once(const Expr& number, int64_t extent) {
    const std::string near = access_.look_up_once(number, extent);
    end_ = " if (!r." + near + "_there) { " + not_there() + " }" + end_;
    return hold("r." + near);
  }
  // What follows only runs for elements inside.
  void check_inside() {
    if (inside_.empty()) return;
    code_ += "if (" + std::exchange(inside_, {}) + ") { ";
    end_ = " } else { " + outside_ + " }" + end_;
  }

  // The value for a looked-up place that does not exist: NaN instead of a load's zero, so that checks of a result find
  // it.
  std::string not_there() const {
    const std::string zero = "0.0f";
    std::string out = outside_;
    const size_t at = out.find(zero);
    return at == std::string::npos ? out : out.replace(at, zero.size(), "bits_to_float(0x7fc00000u)");
  }

  void follow(const Expr& e, const Indices& c) {
    if (e->family() == Family::Leaf) {
      const Index at = ravel(c, e.shape());
      code_ += leaf_(e, held(at));
      return;
    }
    const Node* view = std::exchange(view_, e.get());
    const std::string inside = std::exchange(inside_, {}), end = std::exchange(end_, {});
    const bool nothing = std::exchange(nothing_, false);
    code_ += "{ ";
    e->type->map(*e, *this, c);
    code_ += end_ + " }";
    nothing_ = nothing;
    end_ = end;
    inside_ = inside;
    view_ = view;
  }

  AccessSource& access_;
  Params& params_;
  std::string code_, outside_;
  Leaf leaf_;
  const Node* view_ = nullptr;
  std::string inside_, end_;  // for view_: pending conditions; what closes the open statements
  bool nothing_ = false;      // there is no place to read
};

std::string AccessSource::look_up_once(const Expr& number, int64_t extent) {
  std::string& near = once_[{number.get(), extent}];
  if (!near.empty()) return near;
  near = fresh();
  const std::string dim = params_.integer(name_ + "_dim", extent), place = "r." + near;
  once_members_ += "    int " + near + ";\n    bool " + near + "_there;\n";
  once_code_ += "    { const " + type_source(number.dtype()) + " n = " + params_.pointer(number, false) + "[0]; " +
                place + " = n < 0 ? 0 : n < " + dim + " ? static_cast<int>(n) : " + dim + " - 1; " + place +
                "_there = " + place + " == n; }\n";
  return near;
}

std::string AccessSource::dim(int64_t n) {
  return n == 0 || n == 1 ? std::to_string(n) : params_.integer(name_ + "_dim", n);
}

std::string AccessSource::mapped(const std::string& row, const std::string& col, const std::string& outside,
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
  return "{ " + code + Chain(*this, outside, leaf).source(view_, inner) + " }";
}

}  // namespace tenon::cuda
