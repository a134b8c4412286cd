// Classifier-free guidance of Z-Image, as diffusers' ZImagePipeline computes it.
#pragma once
#include <cstdint>
#include <vector>

namespace tenon {

struct ZImageGuidance {
  double scale = 1;  ///< prediction: negative + scale * (prompt - negative)
  /// Above 0: the prediction is at most this times as long as the prompt's (2-norm, an image's). 0: any length.
  double normalization = 0;
  double truncation = 1;  ///< no guidance at times above it; time is 1 - sigma, 0 for noise and 1 for a picture
};

/// What the network predicts at `time` for `images` prompts, and behind those for their negative ones, as one
/// prediction an image. f32 in and out; norms are summed in f64.
std::vector<float> guided(std::vector<float> predictions, int64_t images, const ZImageGuidance& guidance, double time);

}  // namespace tenon
