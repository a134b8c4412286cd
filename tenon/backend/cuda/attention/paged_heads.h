// Keys and values in pages: tokens of a cache that are found by a number for each page of them.
#pragma once
#include <optional>
#include <string>

#include "tenon/backend/cuda/attention/attention_route.h"
#include "tenon/backend/cuda/codegen/params.h"

namespace tenon::cuda {

/// Heads [batch, heads, tokens, depth] of a pool of tokens, whose strides `rows` has (none of batches: page numbers
/// tell them apart). Token t of an entry is token t % page of page number(entry, t / page) of `pages`.
struct PagedHeads {
  HeadRows rows;
  Expr numbers;  ///< i32 or i64 in memory
  int64_t numbers_offset = 0, entry_step = 0, page_step = 0;
  int64_t page = 0, pages = 0;

  /// Whether other heads are found by the same numbers.
  bool same_pages(const PagedHeads& o) const;
};
/// Nothing if `view` is no such heads of 2-byte elements in strides of whole 16 bytes, in pages of whole `tile`s.
std::optional<PagedHeads> paged_heads(const Expr& view, int64_t tile);
/// Of keys and values [batch, heads, tokens, depth] that are found by the same numbers.
bool in_pages(const Expr& keys, const Expr& values);

/// "static constexpr int kPage = ..", "place(p, entry, token)" and, for numbers that a predecessor may be writing,
/// "place_early": the place of a token in the pool, below 0 where it has none. Members of an operand's functor.
std::string page_source(const PagedHeads& heads, Params& params);
/// The operand's whole functor: "struct K { .. }", whose rows are those of [batch, heads, tokens].
std::string paged_source(const std::string& name, const PagedHeads& heads, const Shape& shape, Params& params);

}  // namespace tenon::cuda
