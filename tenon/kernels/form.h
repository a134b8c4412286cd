// The form of a launch: its body rewritten so that a backend can run it hole by hole.
//
//   lets      small values computed once a launch, in order (group statistics turned into scale and shift);
//             later lets, holes and the epilogue read them as leaves
//   holes     one expression per anchor operand, over the operand's shape ([1] of a number)
//   outputs   one expression each over the launch's domain; `acc` leaves in it stand for the anchor's result
//
// In holes, outputs and lets every view stands directly on a leaf (or on another view): `Pointwise`, `Reduce` over the
// last axis and `broadcast(reduce)` back over it are all that is left above; all that is reduced in one of them has one
// shape. So a backend needs only: load through a chain of views, pointwise, row reduction, store through a chain of
// views.
#pragma once
#include <memory>
#include <optional>

#include "tenon/kernels/launch.h"

namespace tenon {

/// A small value computed once a launch. `leaf` is an Input named "let.N" that stands for it; value.shape() == leaf's.
/// The value's own domain is value.shape(), or its last reduction's operand shape.
struct Let {
  Expr leaf, value;
};

/// One tensor written by a launch in form.
struct FormOutput {
  std::string buffer;
  DType dtype = DType::F32;
  Expr value;  ///< over `domain` (of a lane); for row results (last axis reduced to 1) over [.., 1]
  /// Where an element goes: a chain of views of the domain's shape over an Input leaf named `buffer`, whose shape is
  /// the stored tensor's. Reading it at a domain coordinate gives the element to write.
  Expr place;
  /// Statistics outputs: `value` is reduced over the inner axes after the launch has formed it, by a reduction that is
  /// a function of moments (per sample and channel of what was stored, seen as [samples, inner, channels]).
  const NodeType* statistic = nullptr;
  Shape statistic_shape;  ///< [samples, inner, channels]
  /// Another result of the anchor, as it is: `value` is a leaf that stands for it, `place` the whole tensor.
  const NodeType* companion = nullptr;
};

/// A launch taken apart. Owns the graph that its expressions live in.
struct Form {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Expr anchor;  ///< the anchor over operand placeholders, empty without one
  std::vector<Let> lets;
  std::vector<Expr> holes;  ///< by anchor operand
  Shape domain;             ///< of the outputs: the anchor's result, or one of its lanes
  int lanes = 1;            ///< the anchor's last axis is `lanes` equal parts that the epilogue sees side by side
  std::vector<FormOutput> outputs;
  /// Rows of states that the launch writes and its anchor's operands read behind the write: holes read the state. Each
  /// over a domain of its own.
  std::vector<FormOutput> updates;

  /// The same in a graph of its own, which its owner may add to.
  Form copy() const;
};

/// Lanes of a form, at most.
inline constexpr int kMaxFormLanes = 4;
/// Name of the leaf that stands for lane i of the anchor's result: "acc.0", "acc.1", ...
std::string acc_name(int lane);
/// The lane that `leaf` stands for, or -1.
int acc_lane(const Expr& leaf);
/// True if `e` can leave with the launch that stores what it reduces: a reduction over the inner axes that follows from
/// count, mean and squared deviations (NodeType::reduce_of_moments).
bool is_statistic(const Expr& e);
/// The statistic that `e` is, seen through reshapes, or nothing.
Expr statistic_below(const Expr& e);
/// A reduction of the last axis.
bool is_row_reduction(const Expr& e);
/// True if a value in form reduces rows.
bool reduces_rows(const Expr& value);
/// The shape over which a value in form runs: that of its row reductions, else its own.
Shape domain_of(const Expr& value);
/// True if a hole is computed from weights and literals alone, so that it can be made once, when the launch is bound.
/// (A value that a launch of the constant phase leaves in a buffer does not change either, but is not there yet.)
bool of_weights_only(const Expr& hole);
/// The literal that `e` is, seen through any views that repeat it, or null.
const Node* literal_of(const Expr& e);

/// Why a body has no form: the reason, and the node that would have to be in memory first.
struct Refusal {
  std::string why;
  Expr blocker;  ///< a node of the launch's own graph; empty if the anchor or an output itself cannot be formed
};

/// Either a form or a refusal. Pure: looks at the launch's outputs only.
struct FormResult {
  std::shared_ptr<const Form> form;
  Refusal refusal;
};
FormResult make_form(const Launch& launch);
/// The same in the graph of the launch's own body, which nobody adds to any more.
FormResult make_form(const Launch& launch, std::shared_ptr<Graph> graph);

}  // namespace tenon
