// A launch of attention as a library's: where its operands and its result lie.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/cuda/attention/attention_launch.h"
#include "tenon/backend/cuda/libraries/dnn_library.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {

/// An operand or a result [batch, heads, tokens, depth] whose columns lie side by side, in strides of whole 16 bytes.
struct HeadRows {
  Expr leaf;
  int64_t offset = 0;  ///< elements from the leaf's first
  HeadStrides strides{};
};
/// Nothing if `view` is no single tensor of 2-byte elements that lies so.
std::optional<HeadRows> head_rows(const Expr& view);

/// Of attention, or of one of its gradients: all but how it is split.
device::AttentionSizes attention_sizes(const Form& form);

struct AttentionRoute {
  DnnAttention problem;
  std::vector<LibraryOperand> operands;

  /// Nothing where a library's attention would not be the launch's: with a causal mask, more than the product in the
  /// epilogue, another type, or operands in other layouts. `operands`: q, k and v as the kernel reads them.
  static std::optional<AttentionRoute> of(const Form& form, std::span<const Expr> operands, DType type);
  /// Of the table of what was measured: "attention 2x8x4096 over 8x77 by 40 bytes 2 epilogue plain".
  std::string key() const;
};

}  // namespace tenon::cuda
