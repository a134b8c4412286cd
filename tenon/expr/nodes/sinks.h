// Sinks: what a launch writes. A sink means one or more named tensors, each an expression of its operand.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/permute.h"
#include "tenon/expr/nodes/slice.h"
#include "tenon/expr/precision.h"

namespace tenon::nodes {

// Names of a sink's tensors: its text split at commas.
inline std::vector<std::string> sink_names(const Node& n) {
  std::vector<std::string> names(1);
  for (char c : n.attrs.text) {
    if (c == ',')
      names.emplace_back();
    else
      names.back() += c;
  }
  return names;
}

/// Writes x as `text`.
struct Store : Sink {
  static constexpr auto name = "store";
  static constexpr int kArity = 1;
  static std::vector<SinkOutput> expand(const Node& n) { return {{n.attrs.text, n.in[0]}}; }
};

/// Writes x with its axes reordered by ints, as permute does.
struct StorePermuted : Sink {
  static constexpr auto name = "store_permuted";
  static constexpr int kArity = 1;
  static std::vector<SinkOutput> expand(const Node& n) { return {{n.attrs.text, permute(n.in[0], n.attrs.ints)}}; }
};

/// Splits the last axis into parts of ints columns, one tensor each; text holds their names, separated by commas.
struct Partition : Sink {
  static constexpr auto name = "partition";
  static constexpr int kArity = 1;
  static std::vector<SinkOutput> expand(const Node& n) {
    const std::vector<std::string> names = sink_names(n);
    TENON_CHECK(Usage, names.size() == n.attrs.ints.size(), "partition")
        << n.attrs.ints.size() << " parts but " << names.size() << " names";
    std::vector<SinkOutput> out;
    int64_t begin = 0;
    for (size_t i = 0; i < names.size(); begin += n.attrs.ints[i++])
      out.push_back({names[i], slice(n.in[0], -1, begin, begin + n.attrs.ints[i])});
    TENON_CHECK(Usage, begin == n.in[0].shape()[-1], "partition")
        << "parts add up to " << begin << " of " << n.in[0].shape()[-1] << " columns";
    return out;
  }
};

/// Writes quantize_rows(x): each row as e4m3, and its scale.
struct RowQuantize : Sink {
  static constexpr auto name = "row_quantize";
  static constexpr int kArity = 1;
  static std::vector<SinkOutput> expand(const Node& n) {
    const std::vector<std::string> names = sink_names(n);
    TENON_CHECK(Usage, names.size() == 2, "row_quantize") << "needs the names of the row and of its scale";
    const QuantizedRows rows = quantize_rows(n.in[0]);
    return {{names[0], rows.q}, {names[1], rows.scale}};
  }
};

}  // namespace tenon::nodes

NODE(Store)
NODE(StorePermuted)
NODE(Partition)
NODE(RowQuantize)

namespace tenon {

namespace detail {
template <class T>
Expr make_sink(const Expr& x, std::string names, std::vector<int64_t> ints = {}) {
  Attrs a;
  a.text = std::move(names);
  a.ints = std::move(ints);
  return x.graph().make(node_type<T>(), std::array{x}, a);
}
}  // namespace detail

/// Writes x to the tensor `name`, in x's dtype.
inline Expr store(std::string name, const Expr& x) { return detail::make_sink<nodes::Store>(x, std::move(name)); }
/// Writes x with its axes reordered: out axis i is x's axis axes[i].
inline Expr store_permuted(std::string name, const Expr& x, std::vector<int64_t> axes) {
  return detail::make_sink<nodes::StorePermuted>(x, std::move(name), std::move(axes));
}
/// Writes the column blocks of x (`sizes` columns each) to the comma-separated `names`.
inline Expr partition(std::string names, const Expr& x, std::vector<int64_t> sizes) {
  return detail::make_sink<nodes::Partition>(x, std::move(names), std::move(sizes));
}
/// Writes rows of x as e4m3 to `q` and their f32 scales to `scale`.
inline Expr row_quantize(const std::string& q, const std::string& scale, const Expr& x) {
  return detail::make_sink<nodes::RowQuantize>(x, q + "," + scale);
}

/// The tensors that a list of sinks writes, in order.
inline std::vector<SinkOutput> expand_sinks(std::span<const Expr> sinks) {
  std::vector<SinkOutput> out;
  for (const Expr& s : sinks) {
    TENON_CHECK(Usage, s && s->family() == Family::Sink, "sink") << "expected a sink such as store(name, x)";
    for (SinkOutput& o : s->type->expand(*s)) out.push_back(std::move(o));
  }
  return out;
}

}  // namespace tenon
