// What attention's kernels expect of the scale, on every backend.
#pragma once

namespace tenon {

/// Smallest scale that kernels multiply scores by. Hidden keys have the score -infinity, or the lowest number, which
/// must stay the lowest when multiplied in f32.
inline constexpr double kLeastAttentionScale = 1e-25;

}  // namespace tenon
