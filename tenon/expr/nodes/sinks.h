// Sinks: what a launch writes, one named tensor each. Several of them write what several launches would.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/state.h"

namespace tenon::nodes {

/// Writes x as `text`.
struct Store : Sink {
  static constexpr auto name = "store";
};

}  // namespace tenon::nodes

NODE(Store)

namespace tenon {

/// Writes x to the tensor `name`, in x's dtype: permuted, in parts or quantised if x is that.
inline Expr store(std::string name, const Expr& x) { return make_node<nodes::Store>({x}, {.text = std::move(name)}); }

/// What a sink writes: an update of a state is its own value. Throws Error(Usage) for what is no sink.
inline Result result_of(const Expr& sink) {
  TENON_CHECK(Usage, sink && sink->family() == Family::Sink, "sink") << "expected a sink such as store(name, x)";
  return is_update(sink) ? Result{state_of(sink)->attrs.text, sink} : Result{sink->attrs.text, sink->in[0]};
}

}  // namespace tenon
