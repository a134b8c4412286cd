// Features of pictures: preprocessing, a vision transformer, one vector per picture and one per patch.
//
//   ImageEmbedding embed(ImageEncoder::open("dinov2-small"), {});
//   std::vector<Embedding> e = embed(std::array{read_png("cat.png")});
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tenon/pipelines/families/image_encoder/image_encoder.h"
#include "tenon/pipelines/image_embedder.h"
#include "tenon/runtime/executable.h"

namespace tenon {

/// A network ready to run. One call at a time, which asks check_stop().
class ImageEmbedding : public ImageEmbedder {
 public:
  /// Error(Usage) for an unsupported type or size.
  ImageEmbedding(std::shared_ptr<const ImageEncoder> encoder, EmbeddingOptions options);
  ~ImageEmbedding() override;

  /// Pixels f32 [side, side, 3] as the network reads them. Error(Usage) for a picture without three channels, or so
  /// elongated that scaling it would exceed kMaxImageSide.
  std::vector<float> preprocess(const Image& image) const;
  void check(const Image& image, const std::string& which) const override;
  std::vector<Embedding> operator()(std::span<const Image> images) override;
  std::vector<Embedding> operator()(size_t count, const std::function<Image(size_t)>& picture) override;
  std::unique_ptr<ImageEmbedder> with(const EmbeddingOptions& options) const override;

  const std::string& name() const override { return encoder_->name(); }
  const ImagePreprocessing& preprocessing() const override { return preprocessing_; }
  int64_t patch_side() const override { return encoder_->config().patch; }
  const Backend& backend() const override { return *backend_; }
  NetworkType type() const override { return networks_.type(); }
  const ImageEncoder& encoder() const { return *encoder_; }

 private:
  Executable& executable(int64_t batch);

  std::shared_ptr<const ImageEncoder> encoder_;
  EmbeddingOptions options_;
  std::shared_ptr<Backend> backend_;
  ImagePreprocessing preprocessing_;
  NetworkOptions networks_;
  std::shared_ptr<WeightStore> store_;  // shared by all batch sizes
  int64_t prepared_ = 0;                // the batch size that the executable is for
  std::optional<Executable> executable_;
};

}  // namespace tenon
