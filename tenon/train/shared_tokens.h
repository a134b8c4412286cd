// Common beginnings of a batch's rows, such as those with one prompt, are computed once. Attention is causal and
// everything else works on single tokens, so tokens with equal beginnings have bit-identical values.
#pragma once
#include <cstdint>
#include <vector>

#include "tenon/expr/vjp.h"
#include "tenon/models/decoder.h"
#include "tenon/train/policy_batch.h"

namespace tenon::train {

/// Most rows that a token may be in: its gradient is their sum.
inline constexpr int64_t kMaxSharers = 8;

/// Sizes of a plan, rounded up from the batch's so that few plans serve many batches. All 0: nothing is shared.
struct SharedShape {
  int64_t tokens = 0;   ///< distinct tokens
  int64_t targets = 0;  ///< of all rows
  int64_t texts = 0;    ///< rows that are not the beginning of another row
};

/// The distinct tokens of rows first..first+count-1 of a batch, and their places.
class SharedTokens {
 public:
  SharedTokens(const PolicyBatch& batch, int64_t first, int64_t count);

  const SharedShape& shape() const { return shape_; }
  /// Sets the inputs that decoder_policy_loss has for such a shape, including the batch's.
  void give(Gradients& to, bool with_reference) const;
  /// Scatters one number per target to the batch's places.
  void put(const std::vector<float>& of_targets, std::vector<float>& all) const;

 private:
  const PolicyBatch& batch_;
  // Index of the distinct token at each place of the rows; -1 after their ends. Adds new tokens.
  std::vector<int32_t> number_tokens(const std::vector<int32_t>& ids);
  // Rows that are not the beginning of another row.
  std::vector<int64_t> whole_texts(const std::vector<int32_t>& numbers) const;
  void place(const std::vector<int64_t>& texts, const std::vector<int32_t>& numbers);
  void find_targets(const std::vector<int32_t>& numbers);
  int64_t length(int64_t row) const { return batch_.lengths[static_cast<size_t>(first_ + row)]; }
  bool share_prompt(int64_t row, int64_t other) const {
    return batch_.alike[static_cast<size_t>(first_ + row)] == batch_.alike[static_cast<size_t>(first_ + other)];
  }

  int64_t first_, count_, width_;
  SharedShape shape_;
  std::vector<int32_t> ids_, position_, token_at_, place_of_, owner_, sharers_, source_, source_place_, source_sharers_;
};

/// The same as inputs of a graph, for rows `width` tokens wide.
class SharedInputs {
 public:
  SharedInputs(Graph& g, int64_t width, const SharedShape& shape);

  const Expr& tokens() const { return tokens_; }  ///< i32 [tokens]
  const SharedBeginnings& texts() const { return texts_; }
  /// of_targets: rows [tokens, ..] gathered for each target. from_targets: gradients summed back to where they came
  /// from.
  Expr of_targets(const Expr& rows) const;
  Expr from_targets(const Expr& rows) const;
  /// Values at places of the batch [rows * width, ..], gathered for each target; zeros where a plan has more targets
  /// than the batch.
  Expr at_targets(const Expr& places) const;
  /// Gradients through `texts()`: a token's gradient is the sum over the rows that contain it.
  GradientRule rule() const;

 private:
  Expr tokens_, owner_, sharers_, source_, source_place_, source_sharers_;
  SharedBeginnings texts_;
};

}  // namespace tenon::train
