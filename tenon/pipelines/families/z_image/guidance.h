// Classifier-free guidance of Z-Image, as diffusers' ZImagePipeline computes it.
#pragma once
#include <cstdint>
#include <vector>

namespace tenon {

struct ZImageGuidance {
  double scale = 1;  ///< prediction: negative + scale * (prompt - negative)
  /// Above 0: the norm of the prediction is limited to this multiple of the prompt's (2-norm over an image). 0: no
  /// limit.
  double normalization = 0;
  double truncation = 1;  ///< times above this get no guidance; time is 1 - sigma, 0 for noise and 1 for a picture
};

/// Combines the network's predictions at `time`, first for the `images` prompts and then for their negative ones, into
/// one prediction per image. f32 in and out; norms are summed in f64.
std::vector<float> guided(std::vector<float> predictions, int64_t images, const ZImageGuidance& guidance, double time);

}  // namespace tenon
