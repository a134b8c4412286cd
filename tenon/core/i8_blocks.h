// Numbers as 8-bit integers with a shared scale, 32 of a row at a time, as Q8_0 files hold them. The only place that
// defines how they are rounded.
#pragma once
#include <cstdint>
#include <vector>

namespace tenon {

/// How many numbers share a scale. The last block of a row may be shorter.
inline constexpr int64_t kI8Block = 32;

/// The type a block's scale is rounded to: f16 if blocks are stored, f32 if they are made anew for every product.
enum class BlockScale : uint8_t { F16, F32 };

/// Sets q[i] = x[i] / scale, rounded to nearest, ties to even; returns the scale: the largest |x| / 127, rounded. A
/// Q8_0 block whose largest |q| is 127, as its writers produce, is reproduced exactly. If the scale rounds to 0 (f32:
/// the largest |x| is below 2^-100), all q are 0. A NaN makes the scale NaN; an infinity, or a number too large for
/// f16's scale (8.3e6), makes it infinite. `n` <= kI8Block.
float round_i8_block(const float* x, int64_t n, BlockScale scale, int8_t* q);

/// Rows of `k` elements, each replaced by q * scale of its block.
std::vector<double> i8_rows(const double* x, int64_t rows, int64_t k, BlockScale scale);

}  // namespace tenon
