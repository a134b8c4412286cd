// What the weights of a prompt's parts do to the text encoder's output.
#pragma once
#include <cstdint>
#include <span>

#include "tenon/io/clip_tokenizer.h"

namespace tenon {

/// Multiplies each token's hidden state by its weight and brings every window back to the mean that it had: the rule of
/// AUTOMATIC1111's web UI ("Original" emphasis), which encodes and weighs 75 tokens at a time, start, end and padding
/// included. A window whose weights are all 1 stays as it is, and so does the new mean if it is 0. `hidden` f32
/// [windows, tokens, width], changed in place.
void apply_emphasis(std::span<float> hidden, std::span<const TokenWindow> windows, int64_t width);

}  // namespace tenon
