// Numbers as whole numbers of eight bits that share a scale: 32 of a row at a time, as Q8_0 files hold them. The only
// place that says how they are rounded.
#pragma once
#include <cstdint>
#include <vector>

namespace tenon {

/// Numbers that share a scale. The last block of a row may be shorter.
inline constexpr int64_t kI8Block = 32;

/// What a block's scale is rounded to: f16 where blocks are stored, f32 where they are made anew for every product.
enum class BlockScale : uint8_t { F16, F32 };

/// q[i] = x[i] / scale to the nearest, ties to even, and what the scale is: the largest |x| / 127, rounded. A block of
/// Q8_0 whose largest |q| is 127, as its writers make them, gives its own numbers and scale. Where the scale rounds to
/// nothing (f32: the largest |x| is below 2^-100) all are 0. A NaN makes the scale one, an infinity or too large a
/// number for f16's scale (8.3e6) an infinity. `n` <= kI8Block.
float round_i8_block(const float* x, int64_t n, BlockScale scale, int8_t* q);

/// Rows of `k` elements with q * scale for each block.
std::vector<double> i8_rows(const double* x, int64_t rows, int64_t k, BlockScale scale);

}  // namespace tenon
