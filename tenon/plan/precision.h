// What anchors multiply in: a pass over a model's expressions, by a policy that a plan's text shows.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

/// How the arithmetic of anchors is chosen. As text: a rule, and rules for the layers of some weights behind it:
/// "operands", "e4m3 rows, bf16: t_embedder, f32: final_layer".
struct PrecisionPolicy {
  enum class Rule : uint8_t {
    Operands,   ///< the operands' own types: see arithmetic_of_operands
    F32,        ///< operands as they are, multiplied in f32
    BF16,       ///< operands rounded to bf16
    F16,        ///< operands rounded to f16
    E4m3Rows,   ///< linear layers of constant weights: rows of both operands quantised; all else as BF16
    I8Weights,  ///< linear layers of constant weights: rows of the weights quantised; all else by its operands
    I8Blocks,   ///< linear layers of constant weights: i8 in blocks; all else by its operands
  };
  /// Anchors that multiply a weight whose name contains `name` follow `rule`; the first that fits counts.
  struct Exception {
    Rule rule;
    std::string name;
    bool operator==(const Exception& o) const = default;
  };
  Rule rule = Rule::Operands;
  std::vector<Exception> exceptions = {};

  std::string text() const;
  /// True if all or some anchors follow `r`.
  bool follows(Rule r) const;
  bool quantizes() const { return follows(Rule::E4m3Rows) || follows(Rule::I8Weights) || follows(Rule::I8Blocks); }
  /// Inverse of text. Throws Error(Usage) that names what was found.
  static PrecisionPolicy parse(std::string_view text);
  bool operator==(const PrecisionPolicy& o) const = default;
};

/// What an anchor multiplies in if its operands say: e4m3 in a linear layer of e4m3 alone; f16 or bf16 where all
/// operands are that, or e4m3 or i8 beside it (not in attention); else f32.
DType arithmetic_of_operands(const Expr& anchor);

/// Every anchor below `roots` with the arithmetic that the policy says; where that is a rounding, it is a node of the
/// graph. An anchor that has an arithmetic already keeps it. Quantised layers are y = (q_x q_w^T) s_x s_w
/// (quantize_rows of x and of w) or, of weights alone, (x q_w^T) s_w; what is quantised already is left as it is. A
/// matrix that is multiplied both ways, as a layer and its gradient do, is quantised once, by the rows of w: then the
/// other product is g w = (q_h q_w) s_h with h = g s_w.
std::vector<Expr> set_precision(Graph& g, std::span<const Expr> roots, const PrecisionPolicy& policy);

}  // namespace tenon
