#include "tenon/pipelines/families/image_encoder/embedding.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/io/image_resize.h"

namespace tenon {
namespace {

// Offset of the centre crop in `from` pixels. torchvision rounds half to even, transformers down.
int64_t margin(int64_t from, int64_t crop, const std::string& kind) {
  const int64_t spare = from - crop;
  if (kind != "timm") return spare >= 0 ? spare / 2 : -((-spare + 1) / 2);
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(spare) / 2));
}

// The executable's batch size: as few runs as `most` allows, of equal size.
int64_t even_batch(int64_t count, int64_t most) {
  const int64_t runs = (count + most - 1) / most;
  return (count + runs - 1) / runs;
}

// The long side, in pixels, once the short one is scaled.
int64_t long_side(const Image& image, const ImagePreprocessing& p) {
  return p.short_side * std::max(image.width, image.height) / std::min(image.width, image.height);
}

}  // namespace

ImageEmbedding::ImageEmbedding(std::shared_ptr<const ImageEncoder> encoder, EmbeddingOptions options)
    : encoder_(std::move(encoder)),
      options_(std::move(options)),
      backend_(
          make_backend(options_.device, {.threads = options_.threads, .batch_invariant = options_.batch_invariant})),
      preprocessing_(encoder_->preprocessing(options_.preprocessing)) {
  const NetworkType type = options_.type.value_or(backend_->types().front());
  check_type(*backend_, type.stored, "type");
  TENON_CHECK(Usage, backend_->computes(), "device")
      << backend_->name() << " computes nothing, so it cannot make features";
  TENON_CHECK(Usage, options_.batch > 0, "batch") << "expected a positive number, got " << options_.batch;
  check_exceptions(type, [this] { return networks_of(*encoder_); });
  networks_.precision = {type.stored, type.stored};
  networks_.policy = type.policy;
  networks_.fusion = options_.fusion;
  networks_.fold_scales = options_.fold_scales;
  networks_.target = backend_->target();
  if (options_.side) {
    check_side(encoder_->config(), "size", options_.side);
    // The resized picture keeps its proportion to the crop.
    const double share = static_cast<double>(preprocessing_.short_side) / static_cast<double>(preprocessing_.crop);
    preprocessing_.short_side = std::llround(share * static_cast<double>(options_.side));
    preprocessing_.crop = options_.side;
  }
  plan_image_encoder(encoder_->config(), 1, preprocessing_.crop, preprocessing_.crop, networks_);  // fails early
}

ImageEmbedding::~ImageEmbedding() = default;

std::unique_ptr<ImageEmbedder> ImageEmbedding::with(const EmbeddingOptions& options) const {
  return std::make_unique<ImageEmbedding>(encoder_, options);
}

void ImageEmbedding::check(const Image& image, const std::string& which) const {
  const ImagePreprocessing& p = preprocessing_;
  TENON_CHECK(Usage, image.channels == 3 && image.width > 0 && image.height > 0, which)
      << "expected pixels of 3 channels, got " << image.width << "x" << image.height << " with " << image.channels;
  TENON_CHECK(Usage, long_side(image, p) <= kMaxImageSide, which)
      << image.width << "x" << image.height << " is too long: with the short side scaled to " << p.short_side
      << " pixels, the long side would be " << long_side(image, p) << ", more than " << kMaxImageSide;
}

std::vector<float> ImageEmbedding::preprocess(const Image& image) const {
  const ImagePreprocessing& p = preprocessing_;
  check(image, "picture");
  const int64_t longer = long_side(image, p);
  const bool wide = image.width >= image.height;
  const Image scaled = resize(image, wide ? longer : p.short_side, wide ? p.short_side : longer, Resampling::Bicubic);
  const Image middle =
      crop(scaled, margin(scaled.width, p.crop, p.kind), margin(scaled.height, p.crop, p.kind), p.crop, p.crop);
  std::vector<float> out(middle.pixels.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const float unit = static_cast<float>(middle.pixels[i]) / 255.0f;
    out[i] = (unit - static_cast<float>(p.mean[i % 3])) / static_cast<float>(p.deviation[i % 3]);
  }
  return out;
}

Executable& ImageEmbedding::executable(int64_t batch) {
  if (prepared_ != batch) {
    prepared_ = 0;        // until the next one is complete: preparing may be interrupted
    executable_.reset();  // before the next one allocates its memory
    const int64_t side = preprocessing_.crop;
    if (!store_) store_ = std::make_shared<WeightStore>(backend_, encoder_->weights());
    executable_.emplace(plan_image_encoder(encoder_->config(), batch, side, side, networks_), store_);
    prepared_ = batch;
  }
  return *executable_;
}

std::vector<Embedding> ImageEmbedding::operator()(std::span<const Image> images) {
  const std::string of = " of " + std::to_string(images.size());
  for (size_t i = 0; i < images.size(); ++i)
    check(images[i], images.size() > 1 ? "picture " + std::to_string(i + 1) + of : "picture");
  return (*this)(images.size(), [&](size_t i) { return images[i]; });
}

std::vector<Embedding> ImageEmbedding::operator()(size_t count, const std::function<Image(size_t)>& picture) {
  std::vector<Embedding> out;
  if (count == 0) return out;
  const VitConfig& c = encoder_->config();
  const int64_t batch = even_batch(static_cast<int64_t>(count), options_.batch);
  const int64_t side = preprocessing_.crop / c.patch, tokens = c.prefix() + side * side;
  executable(batch);  // refuses what does not fit before any picture is resized
  std::vector<float> pixels(static_cast<size_t>(batch * preprocessing_.crop * preprocessing_.crop * 3));
  while (out.size() < count) {
    const size_t first = out.size(), end = std::min(first + static_cast<size_t>(batch), count);
    auto at = pixels.begin();
    for (size_t i = first; i < end; ++i) at = std::ranges::copy(preprocess(picture(i)), at).out;
    Executable& e = executable(batch);
    e.set("pixels", pixels);
    e.run(Rate::Step);
    const std::vector<float> all = e.get("tokens");
    for (size_t i = first; i < end; ++i) {
      const auto begin = all.begin() + static_cast<int64_t>(i - first) * tokens * c.width;
      Embedding one{{begin, begin + c.width}, side, side, {}};
      if (options_.patches) one.patches.assign(begin + c.prefix() * c.width, begin + tokens * c.width);
      const auto finite = [](float v) { return std::isfinite(v); };
      TENON_CHECK(Numeric, std::ranges::all_of(one.feature, finite), encoder_->name())
          << "the feature of picture " << i + 1 << " of " << count << " is not finite in " << type().text();
      TENON_CHECK(Numeric, std::ranges::all_of(one.patches, finite), encoder_->name())
          << "the patches of picture " << i + 1 << " of " << count << " are not finite in " << type().text();
      out.push_back(std::move(one));
    }
  }
  return out;
}

}  // namespace tenon
