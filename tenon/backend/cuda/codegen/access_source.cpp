#include "tenon/backend/cuda/codegen/access_source.h"

#include <algorithm>

#include "tenon/backend/uniform.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cuda {
namespace {

bool equals(const std::string& s, const char* literal) { return s == literal; }

std::string times(const std::string& a, const std::string& stride) {
  if (equals(stride, "0")) return "0";
  return equals(stride, "1") ? a : a + " * " + stride;
}

}  // namespace

int64_t product(const Shape& s, int begin, int end) {
  int64_t n = 1;
  for (int a = begin; a < end; ++a) n *= s[a];
  return n;
}

std::string plus(const std::string& a, const std::string& b) {
  if (equals(a, "0")) return b;
  return equals(b, "0") ? a : a + " + " + b;
}

int64_t MatrixDomain::rows() const { return product(shape, 0, split); }
int64_t MatrixDomain::cols() const { return product(shape, split, shape.rank()); }

AccessSource::AccessSource(std::string name, const Expr& view, const MatrixDomain& domain, bool written, Params& params)
    : name_(std::move(name)), view_(view), domain_(domain), written_(written), params_(params) {
  TENON_CHECK(Internal, is_view_chain(view), "cuda") << view->name() << " is not a view of memory";
  const std::optional<std::vector<AffinePiece>> pieces = affine_pieces(view, domain.shape, domain.split);
  uniform_ = uniform_view(view, domain.shape, domain.split, pieces);
  if (!pieces) return;
  affine_ = true;
  for (const AffinePiece& p : *pieces) {
    PieceSource t;
    t.piece = p;
    pieces_.push_back(std::move(t));
  }
  name_fields();
}

// ---- affine pieces ------------------------------------------------------------------------------------------------

void AccessSource::name_fields() {
  const auto number = [this](const char* role, int64_t v) {
    return v == 0 || v == 1 ? std::to_string(v) : params_.integer(name_ + role, v);
  };
  const auto digits = [&](const std::vector<Digit>& list, std::vector<std::string>& strides,
                          std::vector<std::string>& divisors) {
    for (size_t i = 0; i < list.size(); ++i) {
      strides.push_back(number("_stride", list[i].stride));
      divisors.push_back(i ? params_.divisor(name_ + "_extent", list[i].extent) : std::string());
    }
  };
  for (PieceSource& t : pieces_) {
    const AffinePiece& p = t.piece;
    if (p.leaf && !p.leaf.is<nodes::Iota>() && !p.leaf.is<nodes::Constant>())
      t.pointer = params_.pointer(p.leaf, written_);
    t.offset = p.offset ? params_.integer(name_ + "_offset", p.offset) : "0";
    if (p.row_begin > 0) t.row_begin = params_.integer(name_ + "_row_begin", p.row_begin);
    if (p.row_end < domain_.rows()) t.row_end = params_.integer(name_ + "_row_end", p.row_end);
    if (p.col_begin > 0) t.col_begin = params_.integer(name_ + "_col_begin", p.col_begin);
    if (p.col_end < domain_.cols()) t.col_end = params_.integer(name_ + "_col_end", p.col_end);
    digits(p.rows, t.row_strides, t.row_divisors);
    digits(p.cols, t.col_strides, t.col_divisors);
  }
}

bool AccessSource::allows(int width) const {
  return std::all_of(pieces_.begin(), pieces_.end(), [width](const PieceSource& t) {
    return t.piece.col_begin % width == 0 && t.piece.col_end % width == 0;
  });
}

std::string AccessSource::row_members() const {
  std::string out = once_members_;
  for (size_t i = 0; i < pieces_.size(); ++i)
    if (pieces_[i].piece.leaf) out += "    int " + name_ + "_" + std::to_string(i) + ";\n";
  return out;
}

// The address for the mixed-radix index `index`, as statements that leave it in `to`.
static std::string digit_code(const std::string& index, const std::string& start,
                              const std::vector<std::string>& strides, const std::vector<std::string>& divisors,
                              const std::string& to) {
  if (strides.size() == 1) return to + " = " + plus(start, times("(" + index + ")", strides[0])) + ";";
  std::string out = "{ int i = " + index + ", o = " + start + ", q;";
  for (size_t k = strides.size(); k-- > 1;) {
    const std::string& d = divisors[k];
    out += " q = i / " + d + ";";
    if (strides[k] != "0") out += " o += " + times("(i - q * static_cast<int>(" + d + ".divisor))", strides[k]) + ";";
    out += " i = q;";
  }
  return out + " " + to + " = " + plus("o", times("i", strides[0])) + "; }";
}

std::string AccessSource::row_code() const {
  std::string out = once_code_;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const PieceSource& t = pieces_[i];
    if (!t.piece.leaf) continue;
    const std::string row = t.row_begin.empty() ? "row" : "row - " + t.row_begin;
    out += "    " + digit_code(row, t.offset, t.row_strides, t.row_divisors, "r." + name_ + "_" + std::to_string(i)) +
           "\n";
  }
  return out;
}

std::string AccessSource::condition(const PieceSource& t) const {
  std::string out;
  const auto also = [&out](const std::string& what, const std::string& bound) {
    if (!bound.empty()) out += (out.empty() ? "" : " && ") + what + bound;
  };
  also("r.row >= ", t.row_begin);
  also("r.row < ", t.row_end);
  also("col >= ", t.col_begin);
  also("col < ", t.col_end);
  return out;
}

std::string AccessSource::select(const std::function<std::string(size_t)>& body) const {
  std::string out;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const std::string when = i + 1 < pieces_.size() ? condition(pieces_[i]) : "";
    if (i) out += " else ";
    if (!when.empty()) out += "if (" + when + ") ";
    out += "{ " + body(i) + " }";
    if (when.empty()) break;
  }
  return out;
}

std::string AccessSource::column_offset(const PieceSource& t, const std::string& col) const {
  const std::string index = t.col_begin.empty() ? col : col + " - " + t.col_begin;
  return "int at; " + digit_code(index, "0", t.col_strides, t.col_divisors, "at") + " ";
}

bool AccessSource::vector(const PieceSource& t, int width) const {
  const AffinePiece& p = t.piece;
  if (!p.leaf || t.pointer.empty() || p.cols.back().stride != 1) return false;
  if (p.cols.size() > 1 && p.cols.back().extent % width) return false;
  const int64_t size = size_of(p.leaf.dtype()), bytes = std::min<int64_t>(width * size, kLeafAlignment);
  if (p.offset * size % bytes || p.col_begin % width) return false;
  const auto strides_fit = [&](const std::vector<Digit>& digits, size_t count) {
    return std::all_of(digits.begin(), digits.begin() + static_cast<std::ptrdiff_t>(count),
                       [&](const Digit& d) { return d.stride * size % bytes == 0; });
  };
  return strides_fit(p.rows, p.rows.size()) && strides_fit(p.cols, p.cols.size() - 1);
}

// Positions of a fragment's elements relative to its first column's, if every fragment is the same permutation of
// `width` contiguous, aligned elements; else empty.
std::vector<int64_t> AccessSource::exchanged(const PieceSource& t, int width) const {
  const AffinePiece& p = t.piece;
  if (!p.leaf || t.pointer.empty() || p.col_begin % width || width == 1) return {};
  const int64_t size = size_of(p.leaf.dtype()), bytes = std::min<int64_t>(width * size, kLeafAlignment);
  const auto fits = [&](int64_t elements) { return elements * size % bytes == 0; };
  std::vector<int64_t> places = {0};
  int64_t left = width;
  for (size_t k = p.cols.size(); k-- > 0;) {
    const Digit& d = p.cols[k];
    const int64_t here = std::min(left, d.extent);
    if (left % here || d.extent % here || (here < d.extent && !fits(d.stride * here))) return {};
    for (size_t within = places.size(), i = within; i < within * static_cast<size_t>(here); ++i)
      places.push_back(places[i - within] + d.stride);
    left /= here;
  }
  std::vector<int64_t> sorted = places;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != sorted[0] + static_cast<int64_t>(i)) return {};
  const bool rows = std::all_of(p.rows.begin(), p.rows.end(), [&](const Digit& d) { return fits(d.stride); });
  return left == 1 && rows && fits(p.offset + sorted[0]) ? places : std::vector<int64_t>();
}

std::string AccessSource::element(const PieceSource& t, const std::string& index) const {
  if (t.piece.leaf.is<nodes::Iota>()) return "static_cast<float>(" + index + ")";
  return "to_float(" + t.pointer + "[" + index + "])";
}

std::string AccessSource::load_vector(size_t i, int width) const {
  const PieceSource& t = pieces_[i];
  return loader_ + ("<" + type_source(t.piece.leaf.dtype())) + ", " + std::to_string(width) + ">(" + t.pointer +
         " + r." + name_ + "_" + std::to_string(i) + " + at)";
}

std::string AccessSource::load_piece(size_t i, const std::string& dst, int width) const {
  const PieceSource& t = pieces_[i];
  const std::string n = std::to_string(width), row = "r." + name_ + "_" + std::to_string(i);
  const AffinePiece& p = t.piece;
  if (!p.leaf) return uniform_ ? dst + " = 0.0f;" : dst + " = splat<" + n + ">(0.0f);";
  if (p.leaf.is<nodes::Constant>()) {
    const std::string value = params_.number("constant", p.leaf->attrs.nums[0]);
    return dst + " = " + (uniform_ ? value : "splat<" + n + ">(" + value + ")") + ";";
  }
  if (uniform_) return dst + " = " + element(t, row) + ";";
  if (vector(t, width)) return column_offset(t, "col") + dst + " = to_floats(" + load_vector(i, width) + ");";
  if (const std::vector<int64_t> places = exchanged(t, width); !places.empty()) {
    const int64_t first = *std::min_element(places.begin(), places.end());
    std::string out = column_offset(t, "col") + "const Frag<float, " + n + "> whole = to_floats(load<" +
                      type_source(p.leaf.dtype()) + ", " + n + ">(" + t.pointer + " + " + row + " + at - " +
                      std::to_string(-first) + "));";
    for (size_t k = 0; k < places.size(); ++k)
      out += " " + dst + ".v[" + std::to_string(k) + "] = whole.v[" + std::to_string(places[k] - first) + "];";
    return out;
  }
  const bool still = p.cols.back().stride == 0 && (p.cols.size() == 1 || p.cols.back().extent % width == 0);
  if (still) return column_offset(t, "col") + dst + " = splat<" + n + ">(" + element(t, row + " + at") + ");";
  return "UNROLL for (int k = 0; k < " + n + "; ++k) { " + column_offset(t, "col + k") + dst +
         ".v[k] = " + element(t, row + " + at") + "; }";
}

std::string AccessSource::store_piece(size_t i, const std::string& src, int width) const {
  const PieceSource& t = pieces_[i];
  const std::string n = std::to_string(width), row = "r." + name_ + "_" + std::to_string(i);
  const std::string type = type_source(t.piece.leaf.dtype());
  if (uniform_ || domain_.cols() == 1) {
    const std::string value = uniform_ ? src : src + ".v[0]";
    return t.pointer + "[" + row + "] = from_float<" + type + ">(" + value + ");";
  }
  if (vector(t, width))
    return column_offset(t, "col") + "device::store<" + type + ", " + n + ">(" + t.pointer + " + " + row +
           " + at, from_floats<" + type + ">(" + src + "));";
  if (const std::vector<int64_t> places = exchanged(t, width); !places.empty()) {
    const int64_t first = *std::min_element(places.begin(), places.end());
    std::string out = column_offset(t, "col") + "Frag<float, " + n + "> whole;";
    for (size_t k = 0; k < places.size(); ++k)
      out += " whole.v[" + std::to_string(places[k] - first) + "] = " + src + ".v[" + std::to_string(k) + "];";
    return out + " device::store<" + type + ", " + n + ">(" + t.pointer + " + " + row + " + at - " +
           std::to_string(-first) + ", from_floats<" + type + ">(whole));";
  }
  return "UNROLL for (int k = 0; k < " + n + "; ++k) { " + column_offset(t, "col + k") + t.pointer + "[" + row +
         " + at] = from_float<" + type + ">(" + src + ".v[k]); }";
}

std::string AccessSource::load(const std::string& dst, int width) {
  return affine_ ? select([&](size_t i) { return load_piece(i, dst, width); }) : load_chain(dst, width);
}

bool AccessSource::halves(int width) const {
  return affine_ && !uniform_ && size_of(dtype()) == 2 &&
         std::all_of(pieces_.begin(), pieces_.end(),
                     [&](const PieceSource& t) { return vector(t, width) && t.piece.leaf.dtype() == dtype(); });
}

bool AccessSource::stored_halves(int width) const {
  if (halves(width)) return true;
  if (uniform_ || size_of(dtype()) != 2) return false;
  if (!affine_) return found_side_by_side(width);
  return pieces_.size() == 1 && pieces_[0].piece.leaf.dtype() == dtype() && !exchanged(pieces_[0], width).empty();
}

std::string AccessSource::load_stored(const std::string& dst, int width) {
  if (!affine_) return load_chain(dst, width, true);
  const PieceSource& t = pieces_[0];
  if (halves(width)) return load_halves(dst, width);
  const std::vector<int64_t> places = exchanged(t, width);
  return "{ " + column_offset(t, "col") + dst + " = " + loader_ + "<" + type_source(dtype()) + ", " +
         std::to_string(width) + ">(" + t.pointer + " + r." + name_ + "_0 + at - " +
         std::to_string(-*std::min_element(places.begin(), places.end())) + "); }";
}

std::string AccessSource::in_order(const std::string& stored, int width) const {
  if (!affine_ || halves(width)) return "to_floats(" + stored + ")";
  const std::vector<int64_t> places = exchanged(pieces_[0], width);
  std::string order;
  for (const int64_t p : places)
    order += (order.empty() ? "" : ", ") + std::to_string(p - *std::min_element(places.begin(), places.end()));
  return "rearranged<" + order + ">(to_floats(" + stored + "))";
}

bool AccessSource::same_stored(const AccessSource& other, int width) const {
  if (!affine_ || !other.affine_ || pieces_.size() != 1 || other.pieces_.size() != 1) return false;
  const AffinePiece &a = pieces_[0].piece, &b = other.pieces_[0].piece;
  const auto whole = [&](const AffinePiece& p) { return p.col_begin == 0 && p.col_end == domain_.cols(); };
  if (a.leaf != b.leaf || a.rows != b.rows || a.row_begin != b.row_begin || !whole(a) || !whole(b)) return false;
  // Where a fragment begins in memory.
  const auto begin = [width](const AffinePiece& p, int64_t col) {
    int64_t least = INT64_MAX;
    for (int64_t k = 0; k < width; ++k) {
      int64_t at = p.offset, rest = col + k;
      for (size_t d = p.cols.size(); d-- > 0; rest /= p.cols[d].extent)
        at += (d ? rest % p.cols[d].extent : rest) * p.cols[d].stride;
      least = std::min(least, at);
    }
    return least;
  };
  for (int64_t col = 0; col < domain_.cols(); col += width)
    if (begin(a, col) != begin(b, col)) return false;
  return true;
}

bool AccessSource::same_in_rows() const {
  if (!affine_) return repeats();
  return pieces_.size() == 1 && pieces_[0].row_begin.empty() && pieces_[0].row_end.empty() &&
         std::all_of(pieces_[0].piece.rows.begin(), pieces_[0].piece.rows.end(),
                     [](const Digit& d) { return d.stride == 0; });
}

bool AccessSource::repeats() const {
  if (affine_)
    return std::all_of(pieces_.begin(), pieces_.end(),
                       [](const PieceSource& t) { return t.piece.rows.back().stride == 0; });
  Expr e = view_;
  while (e.is<nodes::Broadcast>()) e = e->in[0];
  return domain_.split == domain_.shape.rank() - 1 && e.shape().numel() == e.shape().cols();
}

bool AccessSource::load_past_l1(int width) {
  const bool all =
      affine_ && std::all_of(pieces_.begin(), pieces_.end(), [&](const PieceSource& t) { return vector(t, width); });
  if (all) loader_ = "load_past_l1";
  return all;
}

std::string AccessSource::load_halves(const std::string& dst, int width) const {
  return select([&](size_t i) { return column_offset(pieces_[i], "col") + dst + " = " + load_vector(i, width) + ";"; });
}

std::string AccessSource::store(const std::string& src, int width) {
  return affine_ ? select([&](size_t i) { return store_piece(i, src, width); }) : store_chain(src, width);
}

bool AccessSource::cut_by_rows() const {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [](const PieceSource& t) { return !t.row_begin.empty() || !t.row_end.empty(); });
}

bool AccessSource::cut_by_columns() const {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [](const PieceSource& t) { return !t.col_begin.empty() || !t.col_end.empty(); });
}

bool AccessSource::divides() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const PieceSource& t) { return t.piece.cols.size() > 1; });
}

bool AccessSource::contiguous(int width) const {
  return affine_ && !pieces_.empty() && allows(width) && !(cut_by_rows() && cut_by_columns()) &&
         !(divides() && pieces_.size() > 1) &&
         std::all_of(pieces_.begin(), pieces_.end(), [&](const PieceSource& t) { return vector(t, width); });
}

std::string AccessSource::operand(const std::string& name, int width) const {
  TENON_CHECK(Internal, contiguous(width), "cuda") << "an operand's rows are not contiguous";
  std::string members, code, at;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const PieceSource& t = pieces_[i];
    const std::string n = std::to_string(i), row = t.row_begin.empty() ? "row" : "row - " + t.row_begin;
    const bool last = i + 1 == pieces_.size();
    const std::string start = digit_code(row, t.offset, t.row_strides, t.row_divisors, "start");
    if (cut_by_rows()) {  // one pointer, selected along with the row
      if (i == 0) members += "    const T* x;\n";
      code += std::string(i ? "    else " : "    ") + (last ? "" : "if (row < " + t.row_end + ") ") + "{ int start; " +
              start + " r.x = " + t.pointer + " + start; }\n";
      if (last) at = "    return r.x + at;\n";
    } else {
      members += "    const T* x" + n + ";\n";
      code += "    { int start; " + start + " r.x" + n + " = " + t.pointer + " + start" +
              (t.col_begin.empty() || divides() ? "" : " - " + t.col_begin) + "; }\n";
      if (!last) {
        members += "    int end" + n + ";\n";
        code += "    r.end" + n + " = " + t.col_end + ";\n";
      }
      at += "    " + (last ? std::string() : "if (col < r.end" + n + ") ") + "return r.x" + n + " + at;\n";
    }
  }
  std::string column = "    const int at = col;\n";
  if (divides()) {
    members += "    const Params* p;\n";
    code += "    r.p = &p;\n";
    column = "    const Params& p = *r.p;\n    " + column_offset(pieces_[0], "col") + "\n";
  }
  return "struct " + name + " {\n  using T = " + type_source(dtype()) +
         ";\n  static constexpr int kWidth = " + std::to_string(width) + ";\n  struct Row {\n" + members +
         "  };\n  DEV static Row row(const Params& p, int row) {\n    Row r;\n" + code +
         "    return r;\n  }\n  DEV static const T* at(const Row& r, int col) {\n" + column + at + "  }\n};\n";
}

}  // namespace tenon::cuda
