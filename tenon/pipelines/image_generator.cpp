#include "tenon/pipelines/image_generator.h"

#include "tenon/core/error.h"
#include "tenon/io/files.h"

namespace tenon {

InitImage::InitImage(const Image& image) : width(image.width), height(image.height) {
  TENON_CHECK(Usage, image.channels == 3, "init image") << "expected 3 channels, got " << image.channels;
  values.reserve(image.pixels.size());
  for (uint8_t p : image.pixels) values.push_back(static_cast<float>(p) / 127.5f - 1.0f);
  sha256 = sha256_hex(std::as_bytes(std::span(image.pixels)));
}

void check_batch(int64_t images, bool batch_invariant) {
  TENON_CHECK(Usage, images >= 1 && images <= kMaxImages, "batch") << images << " is outside 1.." << kMaxImages;
  if (batch_invariant && images > kMaxInvariantImages)
    throw Error(ErrorKind::Usage, "batch",
                std::to_string(images) + " images cannot be batch invariant; expected at most " +
                    std::to_string(kMaxInvariantImages),
                "generate several batches with -b");
}

LoraReport ImageGenerator::load_lora(const LoraUse& use) {
  throw Error(ErrorKind::Usage, use.file.string(), "the family of model '" + name() + "' does not support LoRAs");
}

}  // namespace tenon
