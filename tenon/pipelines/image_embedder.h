// Models that embed pictures, of any family: one vector per picture and one per patch.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/io/image.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/network_type.h"

namespace tenon {

class Backend;

/// From picture to network input: resize the short side (bicubic), crop the centre, normalise channels.
struct ImagePreprocessing {
  std::string kind = "timm";  ///< "timm" or "hf": also decides how the centre crop splits an odd margin
  int64_t short_side = 518;   ///< pixels, before cropping
  int64_t crop = 518;         ///< pixels along a side
  std::array<double, 3> mean = {0.485, 0.456, 0.406}, deviation = {0.229, 0.224, 0.225};  ///< of values in [0,1]
};

struct EmbeddingOptions {
  std::string device = "cpu";
  int threads = 0;                  ///< of the CPU backend; 0: all processors
  std::optional<NetworkType> type;  ///< empty: the device's default
  bool fusion = true, fold_scales = true;
  bool batch_invariant = false;  ///< BackendOptions::batch_invariant
  std::string preprocessing;     ///< "timm", "hf", or "" for the checkpoint's kind
  int64_t side = 0;              ///< side in pixels of the square that the network sees; 0: the preprocessing's
  int64_t batch = 8;             ///< most pictures computed together
  bool patches = true;           ///< also give the features of patches
};

/// A network's features of a picture.
struct Embedding {
  std::vector<float> feature;  ///< [width]: the class token after the final norm
  int64_t rows = 0, columns = 0;
  std::vector<float> patches;  ///< [rows, columns, width], from the top left; empty if they are not wanted
};

/// A model ready to embed. One call at a time, which asks check_stop().
class ImageEmbedder {
 public:
  static constexpr AbilityName kAbility{"embed", "make features of pictures"};
  using Options = EmbeddingOptions;

  virtual ~ImageEmbedder() = default;
  virtual const std::string& name() const = 0;
  /// Error(Usage) beginning with `which` for a picture without three channels, or so elongated that scaling it would
  /// exceed kMaxImageSide. Looks at the sides only.
  virtual void check(const Image& image, const std::string& which) const = 0;
  /// Embeddings in the order of the pictures, all of which are checked first. A picture's embedding is bit-identical
  /// whatever else is in the batch. Error(Numeric) if the network's arithmetic overflows.
  virtual std::vector<Embedding> operator()(std::span<const Image> images) = 0;
  /// Embeddings of `count` pictures, the i-th of which is asked for when its batch is computed, so that no more than
  /// one has to be in memory.
  virtual std::vector<Embedding> operator()(size_t count, const std::function<Image(size_t)>& picture) = 0;
  /// The same model prepared for other options, reusing the weights already read.
  virtual std::unique_ptr<ImageEmbedder> with(const EmbeddingOptions& options) const = 0;
  virtual const ImagePreprocessing& preprocessing() const = 0;
  /// Pixels per patch along a side.
  virtual int64_t patch_side() const = 0;
  virtual const Backend& backend() const = 0;
  virtual NetworkType type() const = 0;
};

/// Pictures of the first three principal components, computed over all patches of all embeddings, as red, green and
/// blue; each component is stretched to 0..255 over all patches. `scale`: pixels per patch along a side. All embeddings
/// must have the same width.
std::vector<Image> principal_components(std::span<const Embedding> embeddings, int64_t scale);

}  // namespace tenon
