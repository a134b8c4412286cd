// The arithmetic of anchors: a pass over a model's expressions that follows a policy, which the plan's text shows.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

/// How the arithmetic of anchors is chosen. As text: a rule, then rules for the layers of certain weights: "operands",
/// "e4m3 rows, bf16: t_embedder, f32: final_layer".
struct PrecisionPolicy {
  enum class Rule : uint8_t {
    Operands,   ///< the operands' own types, see arithmetic_of_operands
    F32,        ///< operands as they are, multiplied in f32
    BF16,       ///< operands rounded to bf16
    F16,        ///< operands rounded to f16
    E4m3Rows,   ///< linear layers with constant weights: rows of both operands quantised; the rest as BF16
    I8Weights,  ///< linear layers with constant weights: rows of the weights quantised; the rest as Operands
    I8Blocks,   ///< linear layers with constant weights: i8 in blocks; the rest as Operands
  };
  /// Anchors that multiply a weight whose name contains `name` follow `rule`. The first match wins.
  struct Exception {
    Rule rule;
    std::string name;
    bool operator==(const Exception& o) const = default;
  };
  Rule rule = Rule::Operands;
  std::vector<Exception> exceptions = {};

  std::string text() const;
  /// True if any anchors may follow `r`.
  bool follows(Rule r) const;
  bool quantizes() const { return follows(Rule::E4m3Rows) || follows(Rule::I8Weights) || follows(Rule::I8Blocks); }
  /// Inverse of text. Throws Error(Usage) that names what was found.
  static PrecisionPolicy parse(std::string_view text);
  bool operator==(const PrecisionPolicy& o) const = default;
};

/// The arithmetic that follows from the operands' types: e4m3 for a linear layer of e4m3 operands only; f16 or bf16 if
/// each operand is of that type or, except in attention, e4m3 or i8; else f32.
DType arithmetic_of_operands(const Expr& anchor);

/// Sets the arithmetic of every anchor below `roots` as the policy says; where that rounds operands, the rounding
/// becomes a node. An anchor that already has an arithmetic keeps it. Quantised layers are y = (q_x q_w^T) s_x s_w
/// (quantize_rows of x and of w) or, if only weights are quantised, (x q_w^T) s_w; operands that are quantised already
/// are left alone. A matrix multiplied both ways, as by a layer and its gradient, is quantised once, by rows of w; the
/// other product is then g w = (q_h q_w) s_h with h = g s_w. With `copies` that one reads a transposed copy of q_w.
std::vector<Expr> set_precision(Graph& g, std::span<const Expr> roots, const PrecisionPolicy& policy,
                                bool copies = false);

}  // namespace tenon
