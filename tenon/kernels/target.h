// What the planner knows of the device that a plan is for, as its backend reports it (Backend::target).
#pragma once
#include <cstdint>
#include <functional>

namespace tenon {

class Expr;
struct Form;

struct Target {
  /// Whether the kernel of the form's anchor computes this hole itself. If not, it would read the hole's value from
  /// memory, so an earlier launch stores that value, without the views on top if the kernel reads through them. Empty:
  /// always true. Only asked for holes that change between runs, of forms without refusals.
  std::function<bool(const Form& form, size_t hole)> reads = {};
  /// Whether the kernel of the form's anchor also writes the rows of states that its operands read (Form::updates).
  /// Empty: never; an earlier launch writes them.
  std::function<bool(const Form& form)> writes = {};
  /// Whether the device has a kernel for an anchor that has an equivalent in other nodes (NodeType::apart,
  /// BranchedLinear) and whose arithmetic is set. Empty: for none of them.
  std::function<bool(const Expr& anchor)> runs = {};
  bool i8_blocks = false;    ///< whether linear layers can run in i8 (nodes::Linear)
  bool copies_e4m3 = false;  ///< whether to keep transposed copies of e4m3 weights that products read transposed
  /// The fixed cost of a launch, as the bytes that the device could move in that time.
  int64_t launch_bytes = 65536;
};

}  // namespace tenon
