// Applies the weights of a prompt's parts to the text encoder's output.
#pragma once
#include <cstdint>
#include <span>

#include "tenon/io/clip_tokenizer.h"

namespace tenon {

/// Multiplies each token's hidden state by its weight, then rescales every window to its former mean: the "Original"
/// emphasis of AUTOMATIC1111's web UI, which encodes and weighs 75 tokens at a time, start, end and padding included. A
/// window whose weights are all 1 is unchanged; one whose new mean is 0 is not rescaled. `hidden` f32 [windows, tokens,
/// width] is changed in place.
void apply_emphasis(std::span<float> hidden, std::span<const TokenWindow> windows, int64_t width);

}  // namespace tenon
