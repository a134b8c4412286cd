// Gradient rules that take more than a line or two: of convolution and gather.
#include <algorithm>

#include "tenon/expr/ops.h"

namespace tenon {
namespace {

constexpr int64_t kWholeInF32 = int64_t{1} << 24;

// x with `low` and `high` zeros at the ends of an axis; negative counts crop.
Expr padded(const Expr& x, int axis, int64_t low, int64_t high) {
  const auto some = [](int64_t n) { return std::max<int64_t>(n, 0); };
  const Expr y = pad(x, axis, some(low), some(high));  // first: more may be cropped than x has
  return slice(y, axis, some(-low), y.shape()[axis] - some(-high));
}

// [N,H,W,C] with stride - 1 zeros after each row and each column.
Expr spread(const Expr& x, int64_t stride) {
  const Shape& s = x.shape();
  const Expr apart =
      pad(reshape(x, {s[0], s[1], 1, s[2], 1, s[3]}), {0, 0, 0, 0, 0, stride - 1, 0, 0, 0, stride - 1, 0, 0});
  return reshape(apart, {s[0], s[1] * stride, s[2] * stride, s[3]});
}

Expr image_gradient(const Node& n, const Expr& g) {
  const Shape &x = n.in[0].shape(), &w = n.in[1].shape();
  if (x.numel() == 0 || w.numel() == 0) return broadcast(constant(g.graph(), 0), x);  // there is nothing to add up
  const auto& p = n.attrs.ints;
  Expr y = spread(g, p[0]);
  std::array<int64_t, 4> pads{};
  for (size_t axis : {size_t{0}, size_t{1}}) {
    const int at = static_cast<int>(axis) + 1;
    const int64_t low = w[at + 1] - 1 - p[1 + axis], high = x[at] - y.shape()[at] + p[1 + axis];
    y = padded(y, at, std::min<int64_t>(low, 0), std::min<int64_t>(high, 0));
    pads[axis] = std::max<int64_t>(low, 0);
    pads[axis + 2] = std::max<int64_t>(high, 0);
  }
  return conv2d(y, flip(flip(permute(n.in[1], {1, 0, 2, 3}), 2), 3), 1, pads);
}

Expr filter_gradient(const Node& n, const Expr& g) {
  const Shape &x = n.in[0].shape(), &w = n.in[1].shape(), &y = n.shape;
  if (w.numel() == 0) return broadcast(constant(g.graph(), 0), w);
  const auto& p = n.attrs.ints;
  const int64_t stride = p[0], height = y[1] * stride, width = y[2] * stride, pixels = y[0] * y[1] * y[2];
  const Expr of_outputs = transpose(reshape(g, {pixels, y[3]}));
  // [N, H', stride, W', stride, C]
  const auto on_grid = [&](const Expr& image) { return reshape(image, {x[0], y[1], stride, y[2], stride, x[3]}); };
  if (w[2] == stride && w[3] == stride) {  // patches do not overlap
    const Expr image = padded(padded(n.in[0], 1, p[1], height - x[1] - p[1]), 2, p[2], width - x[2] - p[2]);
    const Expr patches = reshape(permute(on_grid(image), {0, 1, 3, 5, 2, 4}), {pixels, w[1] * stride * stride});
    return reshape(linear(of_outputs, transpose(patches)), w);
  }
  const Expr image =
      padded(padded(n.in[0], 1, p[1], height + w[2] - 1 - x[1] - p[1]), 2, p[2], width + w[3] - 1 - x[2] - p[2]);
  std::vector<Expr> taps;
  for (int64_t tap = 0; tap < w[2] * w[3]; ++tap) {
    const int64_t top = tap / w[3], left = tap % w[3];
    const Expr seen = on_grid(slice(slice(image, 1, top, top + height), 2, left, left + width));
    const Expr values = reshape(slice(slice(seen, 2, 0, 1), 4, 0, 1), {pixels, x[3]});
    taps.push_back(reshape(linear(of_outputs, transpose(values)), {w[0], w[1], 1}));
  }
  return reshape(concat(taps, 2), w);
}

}  // namespace

std::vector<Expr> nodes::Conv2d::vjp(const Expr& node, const Expr& g) {
  return {image_gradient(*node, g), filter_gradient(*node, g)};
}

std::vector<Expr> nodes::Gather::vjp(const Expr& node, const Expr& g) {
  return {add_rows(g, node->in[1], node->in[0].shape()[0]), Expr()};
}

Expr add_rows(const Expr& rows, const Expr& index, int64_t count) {
  Graph& g = rows.graph();
  const Shape& from = rows.shape();
  TENON_CHECK(Usage, from.rank() >= index.shape().rank() && count >= 0 && count <= kWholeInF32, "add_rows")
      << "rows " << from.str() << " do not match the index " << index.shape().str() << " and " << count << " sums";
  std::vector<int64_t> dims(from.begin() + index.shape().rank(), from.end());
  dims.insert(dims.begin(), count);
  const Shape shape(dims);
  const int64_t n = index.shape().numel(), width = count ? shape.numel() / count : 0;
  if (n == 0 || shape.numel() == 0) return broadcast(constant(g, 0), shape);
  // A product with a 0/1 matrix sums the rows that have equal indices.
  const Expr numbers = reshape(index, {1, n}), values = transpose(reshape(rows, {n, width}));
  const auto is = [&](const Expr& wanted, int64_t m) { return equal(reshape(wanted, {m, 1}), numbers); };
  if (n >= count) return reshape(linear(is(iota(g, count), count), values), shape);
  // Sum, for each row, all rows with its index; then find for each number the last row that has it (0: none).
  const Expr sums = linear(is(index, n), values);
  const Expr place = reduce_max(is(iota(g, count), count) * (iota(g, n) + 1.0));
  return reshape(gather(pad(sums, {1, 0, 0, 0}), reshape(cast(place, DType::I32), {count})), shape);
}

}  // namespace tenon
