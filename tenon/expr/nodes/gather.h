// Gather: rows of x selected by integers: out[i.., :] = x[index[i..], :].
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// Operands x [V, ..] and index (i32 or i64, any shape or a scalar). Reading through an index outside 0..V-1 throws
/// Error(Numeric) on the CPU; a GPU, which cannot stop, reads NaN (an index that is itself gathered counts as 0).
struct Gather : View {
  static constexpr auto name = "gather";
  static constexpr int kArity = 2;
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape) {
    const Shape &x = in[0].shape(), &index = in[1].shape();
    TENON_CHECK(Usage, x.rank() >= 1, "gather") << "x needs an axis to choose from";
    TENON_CHECK(Usage, in[1].dtype() == DType::I32 || in[1].dtype() == DType::I64, "gather")
        << "the index must be i32 or i64, got " << name_of(in[1].dtype());
    std::vector<int64_t> dims(index.begin(), index.end());
    dims.insert(dims.end(), x.begin() + 1, x.end());
    shape = Shape(dims);
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    const Shape& x = n.in[0].shape();
    Indices at{};
    at[0] = a.look_up(1, c, x[0]);
    for (int i = 1, from = n.in[1].shape().rank(); i < x.rank(); ++i, ++from)
      at[static_cast<size_t>(i)] = c[static_cast<size_t>(from)];
    a.read(0, at);
  }
  /// Adds rows of g up where they came from: add_rows.
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

}  // namespace tenon::nodes

NODE(Gather)

namespace tenon {

/// Rows of x selected by `index`: shape index.shape + x.shape[1:].
inline Expr gather(const Expr& x, const Expr& index) { return make_node<nodes::Gather>({x, index}); }

/// Scatter-add, gather's transpose: out[v, ..] = sum of rows[i.., ..] over i with index[i] = v, for v < count; rows has
/// shape index.shape + the rest of out's. f32. The order of a sum depends on shapes only, so equal runs give equal
/// bits. With fewer rows than `count`, computes only as many sums as rows. A row that is not finite spoils the other
/// sums too. Throws Error(Usage) for a count above 2^24.
Expr add_rows(const Expr& rows, const Expr& index, int64_t count);

}  // namespace tenon
