// Keys and values of a cache: how many there are, and pages of them, found through a page table.
#pragma once
#include <optional>
#include <string>

#include "tenon/backend/cuda/attention/attention_route.h"
#include "tenon/backend/cuda/codegen/params.h"

namespace tenon::cuda {

/// Heads [batch, heads, tokens, depth] of a pool of tokens with the strides of `rows` (no batch stride: page numbers
/// replace it). Token t of an entry is token t % page of page number(entry, t / page), one of `pages`.
struct PagedHeads {
  HeadRows rows;
  Expr numbers;  ///< i32 or i64 in memory
  int64_t numbers_offset = 0, entry_stride = 0, page_stride = 0;
  int64_t page = 0, pages = 0;

  /// Whether both are found through the same page numbers.
  bool same_pages(const PagedHeads& o) const;
};
/// Empty unless `view` is such heads: 2- or 4-byte elements, strides that are multiples of 16 bytes, pages of whole
/// `tile`s.
std::optional<PagedHeads> paged_heads(const Expr& view, int64_t tile);
/// Whether keys and values [batch, heads, tokens, depth] are paged with the same page numbers.
bool in_pages(const Expr& keys, const Expr& values);

/// Members of an operand's functor: "static constexpr int kPage = ..", "place(p, entry, token)" and, for page numbers
/// that a predecessor may still be writing, "place_early". They give a token's position in the pool, below 0 if it has
/// none.
std::string page_source(const PagedHeads& heads, Params& params);
/// The operand's whole functor, "struct K { .. }", whose rows are those of [batch, heads, tokens].
std::string paged_source(const std::string& name, const PagedHeads& heads, const Shape& shape, Params& params);

/// "struct Keys { .. };" (device/attention/attention_keys.h). `count`: an operand with one number, or one per batch
/// entry; if empty, the sizes hold it. Adds to the kernel's parameters and headers.
std::string keys_source(const Expr& count, Params& params, std::string& headers);

}  // namespace tenon::cuda
