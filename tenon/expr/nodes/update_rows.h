// Replaces rows of a state, as a value: reading this node reads the state after the write.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/gather.h"
#include "tenon/expr/state.h"

namespace tenon::nodes {

/// Operands: a state [V, ..] or an update of one, index (i32 or i64, any shape), rows index.shape + [..] of the state's
/// element type. The state with rows[i.., :] at index[i..]. Rows with the same index must be equal: which of them
/// remains is unspecified. An index outside 0..V-1 is an error on the CPU; a GPU writes nothing there.
struct UpdateRows : Sink {
  static constexpr auto name = "update_rows";
  static constexpr int kArity = 3;
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape) {
    TENON_CHECK(Usage, state_of(in[0]), "update_rows")
        << "writes into a state or an update of one, got " << in[0]->name();
    const DType dtype = in[0].dtype();
    Shape rows = shape;
    Gather::infer(in.first(2), {}, rows);
    TENON_CHECK(Usage, in[2].shape() == rows && in[2].dtype() == dtype, "update_rows")
        << "rows of '" << state_of(in[0])->attrs.text << "' are " << name_of(dtype) << rows.str() << ", got "
        << name_of(in[2].dtype()) << in[2].shape().str();
  }
  static Expr place(std::span<const Expr> in) { return gather(in[0], in[1]); }
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    const int64_t all = n.shape.numel(), row = n.shape[0] ? all / n.shape[0] : 0;
    std::copy_n(in[0], all, out);
    for (int64_t i = 0; i < n.in[1].shape().numel(); ++i) {
      TENON_CHECK(Numeric, in[1][i] >= 0 && in[1][i] < static_cast<double>(n.shape[0]), "update_rows")
          << "index " << in[1][i] << " is outside 0.." << n.shape[0] - 1;
      std::copy_n(in[2] + i * row, row, out + static_cast<int64_t>(in[1][i]) * row);
    }
  }
};

}  // namespace tenon::nodes

NODE(UpdateRows)

namespace tenon {

/// The value of a state after `rows` were written at `index` of its first axis. A plan writes them in place, after
/// everything that reads `state` has run; whatever reads the result then reads the state. As a result of a plan it has
/// the state's name.
inline Expr update_rows(const Expr& state, const Expr& index, const Expr& rows) {
  return make_node<nodes::UpdateRows>({state, index, rows});
}

}  // namespace tenon
