// Gradient rules that are programs of their own: of convolutions, attention and gathered rows.
#include <algorithm>

#include "tenon/expr/ops.h"

namespace tenon {
namespace {

constexpr int64_t kWholeInF32 = int64_t{1} << 24;

}  // namespace

std::vector<Expr> nodes::Gather::vjp(const Expr& node, const Expr& g) {
  return {add_rows(g, node->in[1], node->in[0].shape()[0]), Expr()};
}

Expr add_rows(const Expr& rows, const Expr& index, int64_t count) {
  Graph& g = rows.graph();
  const Shape& from = rows.shape();
  TENON_CHECK(Usage, from.rank() >= index.shape().rank() && count >= 0 && count <= kWholeInF32, "add_rows")
      << "rows " << from.str() << " for the index " << index.shape().str() << " and " << count << " sums";
  std::vector<int64_t> dims(from.begin() + index.shape().rank(), from.end());
  dims.insert(dims.begin(), count);
  const Shape shape(dims);
  const int64_t n = index.shape().numel(), width = count ? shape.numel() / count : 0;
  if (n == 0 || shape.numel() == 0) return broadcast(constant(g, 0), shape);
  // One product with a matrix of ones and zeros adds up rows of equal number.
  const Expr numbers = reshape(index, {1, n}), values = transpose(reshape(rows, {n, width}));
  const auto is = [&](const Expr& wanted, int64_t m) { return equal(reshape(wanted, {m, 1}), numbers); };
  if (n >= count) return reshape(linear(is(iota(g, count), count), values), shape);
  // Each row's own sum, and for each number the last row that has it; 0 stands for none.
  const Expr sums = linear(is(index, n), values);
  const Expr place = reduce_max(is(iota(g, count), count) * (iota(g, n) + 1.0));
  return reshape(gather(pad(sums, {1, 0, 0, 0}), reshape(cast(place, DType::I32), {count})), shape);
}

}  // namespace tenon
