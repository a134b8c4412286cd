// What the planner knows of the device that a plan is for: its backend says so (Backend::target).
#pragma once
#include <functional>

#include "tenon/kernels/form.h"

namespace tenon {

struct Target {
  /// Whether a launch of the form's anchor has use for this hole as it is. Where not, its kernel would read the hole's
  /// value from memory: it is stored by a launch in front of the anchor's, but for the views on top of it, if the
  /// kernel reads through them. Empty: always. Asked for holes that change, of forms without refusals.
  std::function<bool(const Form& form, size_t hole)> reads = {};
  /// Whether the kernel of the form's anchor writes the rows of states that its operands read (Form::updates). Empty:
  /// never, they are written by a launch in front.
  std::function<bool(const Form& form)> writes = {};
  /// Whether the device has a kernel for an anchor that other nodes can stand for (NodeType::apart, BranchedLinear),
  /// whose arithmetic is settled. Empty: for none of them.
  std::function<bool(const Expr& anchor)> runs = {};
  bool i8_blocks = false;  ///< whether linear layers run in i8 (nodes::Linear)
  /// What a launch costs whatever it does, as the bytes that the device moves in that time.
  int64_t launch_bytes = 65536;
};

}  // namespace tenon
