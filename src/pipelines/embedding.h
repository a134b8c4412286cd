// Features of pictures: preprocessing, a vision transformer, one vector a picture and one a patch.
//
//   ImageEmbedding embed(ImageEncoder::open("dinov2-small"), {});
//   std::vector<Embedding> e = embed(std::array{read_png("cat.png")});
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/io/image.h"
#include "tenon/pipelines/image_encoder.h"
#include "tenon/runtime/executable.h"

namespace tenon {

struct EmbeddingOptions {
  std::string device = "cpu";
  int threads = 0;            ///< of the CPU backend; 0: all processors
  std::optional<DType> type;  ///< empty: the device's default
  bool fusion = true, fold_scales = true;
  std::string preprocessing;  ///< "timm", "hf" or "": the checkpoint's kind
  int64_t side = 0;           ///< pixels of the square that the network sees; 0: the preprocessing's
  int64_t batch = 8;          ///< pictures computed together, at most
};

/// What a network says of a picture.
struct Embedding {
  std::vector<float> feature;  ///< [width]: the class token behind the final norm
  int64_t rows = 0, columns = 0;
  std::vector<float> patches;  ///< [rows, columns, width], from the top left
};

/// A network made ready. One call at a time, which asks check_stop().
class ImageEmbedding {
 public:
  /// Error(Usage) for a type or size that cannot be computed in.
  ImageEmbedding(std::shared_ptr<const ImageEncoder> encoder, EmbeddingOptions options);
  ~ImageEmbedding();

  /// Pixels f32 [side, side, 3] as the network reads them. Error(Usage) for a picture without three channels, or so
  /// long that scaling it would pass kMaxImageSide.
  std::vector<float> preprocess(const Image& image) const;
  /// Embeddings in the order of the pictures. A picture's are the same, to the bit, whatever stands beside it.
  /// Error(Numeric) if the network's arithmetic overflows.
  std::vector<Embedding> operator()(std::span<const Image> images);

  const ImagePreprocessing& preprocessing() const { return preprocessing_; }
  const ImageEncoder& encoder() const { return *encoder_; }
  const Backend& backend() const { return *backend_; }
  DType type() const { return networks_.precision.act; }

 private:
  Executable& executable(int64_t batch);

  std::shared_ptr<const ImageEncoder> encoder_;
  EmbeddingOptions options_;
  std::shared_ptr<Backend> backend_;
  ImagePreprocessing preprocessing_;
  NetworkOptions networks_;
  std::shared_ptr<WeightStore> store_;  // of all batches
  int64_t prepared_ = 0;                // the batch that the executable is for
  std::optional<Executable> executable_;
};

/// Pictures of the first three principal components of all patches together, red, green and blue; each component is
/// stretched to 0..255 over all patches. `scale` pixels a patch, along a side. All embeddings are of one width.
std::vector<Image> principal_components(std::span<const Embedding> embeddings, int64_t scale);

}  // namespace tenon
