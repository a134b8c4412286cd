// The form of a launch: what it computes, rewritten so that a backend can run it.
//
//   lets      small values computed once per launch, in order (group statistics turned into scale and shift);
//             later lets, holes and the epilogue read them as leaves
//   holes     one expression per anchor operand, over the operand's shape ([1] for a number)
//   outputs   one expression each over the launch's domain; `acc` leaves in it stand for the anchor's result
//
// In holes, outputs and lets, every view applies directly to a leaf or to another view. Above views only `Pointwise`,
// `Reduce` over the last axis and `broadcast(reduce)` back over that axis remain, and all reductions within one
// expression are over one shape. So a backend needs only: loads through a chain of views, pointwise maths, row
// reductions, and stores through a chain of views.
#pragma once
#include <memory>

#include "tenon/kernels/launch.h"

namespace tenon {

/// A small value computed once per launch. `leaf`, an Input named "%let.N", stands for it and has its shape. The domain
/// of the value is value.shape(), or the shape that its last reduction reduces.
struct Let {
  Expr leaf, value;
};

/// One tensor written by a launch in form.
struct FormOutput {
  std::string buffer;
  DType dtype = DType::F32;
  Expr value;  ///< over `domain` (one lane); row results (last axis reduced to 1) are over [.., 1]
  /// Where elements go: a chain of views, with the domain's shape, over an Input leaf that is named `buffer` and has
  /// the stored tensor's shape. The element it would read at a domain coordinate is the one to write.
  Expr place;
  /// For statistics: the launch reduces `value` over the inner axes once it has computed it, by a reduction that is a
  /// function of moments (per sample and channel of the stored tensor, seen as [samples, inner, channels]).
  const NodeType* statistic = nullptr;
  Shape statistic_shape;  ///< [samples, inner, channels]
  /// For another result of the anchor, stored as is: `value` is a leaf that stands for it, `place` the whole tensor.
  const NodeType* companion = nullptr;
};

/// The form of a launch. Owns the graph of its expressions.
struct Form {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Expr anchor;  ///< the anchor over operand placeholders; empty if there is none
  std::vector<Let> lets;
  std::vector<Expr> holes;  ///< one per anchor operand
  Shape domain;             ///< of the outputs: the shape of the anchor's result, or of one lane
  int lanes = 1;            ///< the anchor's last axis has `lanes` equal parts, which the epilogue reads side by side
  std::vector<FormOutput> outputs;
  /// Rows of states that the launch writes before its anchor's operands read them (holes read the updated state). Each
  /// has a domain of its own.
  std::vector<FormOutput> updates;
};

/// Maximum number of lanes of a form.
inline constexpr int kMaxFormLanes = 4;
/// Name of the leaf that stands for lane i of the anchor's result: "%acc.0", "%acc.1", ...
std::string acc_name(int lane);
/// True for a reduction over the inner axes that is a function of count, mean and squared deviations
/// (NodeType::reduce_of_moments): the launch that stores its operand can yield it too.
bool is_statistic(const Expr& e);
/// The statistic that `e` is, looking through reshapes; empty if none.
Expr statistic_below(const Expr& e);
/// True for a reduction over the last axis.
bool is_row_reduction(const Expr& e);
/// True if a value in form contains a row reduction.
bool reduces_rows(const Expr& value);
/// The shape a value in form is computed over: the shape that its row reductions reduce, else its own.
Shape domain_of(const Expr& value);
/// True if a hole depends on weights and literals alone, so that it can be computed once, when the launch is bound. (A
/// value that a launch of the constant phase stores in a buffer does not change either, but is not available by then.)
bool of_weights_only(const Expr& hole);
/// The literal that `e` is, looking through views that repeat it, or null.
const Node* literal_of(const Expr& e);

/// Why a launch has no form, and the node that would have to be in memory first.
struct Refusal {
  std::string why;
  Expr blocker;  ///< a node of the launch's own graph; empty if the anchor or an output itself cannot be formed
};

/// Either a form or a refusal. Depends on the launch's outputs only.
struct FormResult {
  std::shared_ptr<const Form> form;
  Refusal refusal;
};
/// `graph`: a new one, or that of the launch's own outputs, to which nothing may be added any more.
FormResult make_form(const Launch& launch, std::shared_ptr<Graph> graph = std::make_shared<Graph>());

}  // namespace tenon
