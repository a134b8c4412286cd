// Sizes of chunks, pages and caches.
#pragma once
#include <array>
#include <cstdint>

#include "tenon/models/decoder.h"

namespace tenon {

/// Tokens per run of a prompt. A remainder takes the smallest that holds it; more than the largest continues in another
/// run.
inline constexpr std::array<int64_t, 3> kChunks = {8, 64, 512};
inline constexpr int64_t kMinCapacity = 256;  ///< least room for tokens after a prompt
inline constexpr int64_t kOwnPages = 1;       ///< pages of the pool that belong to the loop and to no text

/// Number of pages that hold so many tokens.
inline int64_t pages_for(int64_t tokens) { return (tokens + kCachePage - 1) / kCachePage; }
/// Most pages for a text of so many tokens, since the last run of a prompt may be padded with meaningless tokens.
inline int64_t table_pages(int64_t tokens) { return pages_for(tokens + kChunks.back()); }

}  // namespace tenon
