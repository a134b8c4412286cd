// Attention handed to a library: where the launch's operands and result lie.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/cuda/attention/attention_tiles.h"
#include "tenon/backend/cuda/libraries/dnn_library.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {

/// An operand or a result [batch, heads, tokens, depth] with contiguous columns and strides that are multiples of 16
/// bytes.
struct HeadRows {
  Expr leaf;
  int64_t offset = 0;  ///< elements from the leaf's start
  HeadStrides strides{};
};
/// Empty unless `view` is a single tensor of 2-byte elements with that layout.
std::optional<HeadRows> head_rows(const Expr& view);

/// Sizes of attention, or of one of its gradients, except its splits.
device::AttentionSizes attention_sizes(const Form& form);

struct AttentionRoute {
  DnnAttention problem;
  std::vector<LibraryOperand> operands;

  /// Empty if a library's attention would not compute the same: with a causal mask, an epilogue that does more than
  /// store the product, another type, or operands in other layouts. `operands`: q, k and v as the kernel reads them.
  static std::optional<AttentionRoute> of(const Form& form, std::span<const Expr> operands, DType type);
  /// Key into the table of measurements: "attention 2x8x4096 over 8x77 by 40 bytes 2 epilogue plain".
  std::string key() const;
};

}  // namespace tenon::cuda
