// How large a cache is.
#pragma once
#include <array>
#include <cstdint>

#include "tenon/models/decoder.h"

namespace tenon {

/// Tokens of a prompt's run. What is left takes the smallest that holds it; more than the largest goes on in the next.
inline constexpr std::array<int64_t, 3> kChunks = {8, 64, 512};
inline constexpr int64_t kLeastCapacity = 256;  ///< tokens that there is room for behind a prompt
inline constexpr int64_t kOwnPages = 1;         ///< of the pool, that are the loop's and no text's

/// Pages that hold so many tokens.
inline int64_t pages_for(int64_t tokens) { return (tokens + kCachePage - 1) / kCachePage; }
/// Pages that a text of so many tokens may come to: a prompt's run may end with tokens that mean nothing.
inline int64_t table_pages(int64_t tokens) { return pages_for(tokens + kChunks.back()); }

}  // namespace tenon
