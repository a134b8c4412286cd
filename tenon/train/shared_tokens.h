// Rows of a batch that begin alike, as those of one prompt do: what is alike is computed once. Attention is causal and
// everything else belongs to one token alone, so that tokens with equal beginnings have equal bits.
#pragma once
#include <cstdint>
#include <vector>

#include "tenon/expr/vjp.h"
#include "tenon/models/decoder.h"
#include "tenon/train/policy_batch.h"

namespace tenon::train {

/// A token stands in so many rows at most: its gradient is their sum.
inline constexpr int64_t kMostSharers = 8;

/// Sizes of a plan, a little more than a batch has, so that few plans serve many batches. All 0: nothing is shared.
struct SharedShape {
  int64_t tokens = 0;   ///< that differ
  int64_t targets = 0;  ///< of all rows
  int64_t texts = 0;    ///< rows that are no other row's beginning
};

/// The tokens of rows first..first+count-1 of a batch without repetitions, and where they stand.
class SharedTokens {
 public:
  SharedTokens(const PolicyBatch& batch, int64_t first, int64_t count);

  const SharedShape& shape() const { return shape_; }
  /// Sets the inputs that decoder_policy_loss has of such a shape, the batch's included.
  void give(Gradients& to, bool with_reference) const;
  /// A number of each target into one of each place of the batch.
  void put(const std::vector<float>& of_targets, std::vector<float>& all) const;

 private:
  const PolicyBatch& batch_;
  // Which token stands where in the rows; -1 behind their ends. Enters new tokens.
  std::vector<int32_t> number_tokens(const std::vector<int32_t>& ids);
  // Rows that no other row begins with.
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
  /// Rows [tokens, ..] for each target, and gradients of those added up where they came from.
  Expr of_targets(const Expr& rows) const;
  Expr from_targets(const Expr& rows) const;
  /// What belongs to places of the batch [rows * width, ..], for each target; zeros where a plan has more targets than
  /// the batch.
  Expr at_targets(const Expr& places) const;
  /// Gradients through `texts()`: a token's is the sum over the rows that it stands in.
  GradientRule rule() const;

 private:
  Expr tokens_, owner_, sharers_, source_, source_place_, source_sharers_;
  SharedBeginnings texts_;
};

}  // namespace tenon::train
