// Sinks: what a launch writes, one named tensor each. A launch with several sinks does the work of several launches.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/state.h"

namespace tenon::nodes {

/// Writes x to the tensor named `text`.
struct Store : Sink {
  static constexpr auto name = "store";
};

}  // namespace tenon::nodes

NODE(Store)

namespace tenon {

/// Writes x to the tensor `name`, in x's dtype. Permuted, partial or quantised stores: make x such an expression.
inline Expr store(std::string name, const Expr& x) { return make_node<nodes::Store>({x}, {.text = std::move(name)}); }

/// The named result that a sink writes; for an update of a state, the update itself. Throws Error(Usage) if not a sink.
inline Result result_of(const Expr& sink) {
  TENON_CHECK(Usage, sink && sink->family() == Family::Sink, "sink") << "expected a sink such as store(name, x)";
  return is_update(sink) ? Result{state_of(sink)->attrs.text, sink} : Result{sink->attrs.text, sink->in[0]};
}

}  // namespace tenon
