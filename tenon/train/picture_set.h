// Pictures to learn from: a folder of PNG and JPEG files with what they show, encoded once by a model's frozen parts.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tenon/pipelines/trainable_denoiser.h"
#include "tenon/train/picture_sizes.h"

namespace tenon::train {

struct CaptionedPicture {
  std::string name;  ///< of the file, for messages
  Image image;
  std::string sha256;  ///< of the file
  std::string caption;
};

/// The pictures of a folder (.png, .jpg, .jpeg, in any case) in the order of their names, each with the text of the
/// .txt file beside it, or else `caption`. Text is UTF-8, a byte order mark and blanks around it are no part of it.
/// Error(Usage) names the folder or file: none there, no picture in it, one that cannot be read or has no caption, a
/// caption without a picture.
std::vector<CaptionedPicture> read_pictures(const std::filesystem::path& folder,
                                            const std::optional<std::string>& caption);

struct PictureSetOptions {
  /// Each picture goes to the one nearest to its shape: it is scaled until both sides are covered, and cut to the
  /// middle.
  std::vector<PictureSize> sizes;
  bool flip = false;  ///< each picture is there mirrored too
};

/// What a model's frozen parts make of a picture and its caption.
struct EncodedPicture {
  std::vector<std::vector<float>> moments;  ///< of the picture; with flips, of the mirrored one behind it
  size_t text = 0;                          ///< of PictureSet::texts
  PictureSize size;                         ///< that it was brought to
};

struct PictureSet {
  std::vector<EncodedPicture> pictures;
  std::vector<TextFeatures> texts;
  int64_t made = 0;  ///< encoded now, pictures and texts; the rest was in the cache
  /// Changes with every picture, caption, size and model.
  std::string sha256;
};

/// Makes the folder of a cache; nothing of an empty path. Error(Usage): it cannot be.
void make_cache(const std::filesystem::path& folder);

/// Encodes pictures; what `cache` has of the same pictures, texts, size, type and model is read from there, what it
/// lacks is kept there. An empty `cache` keeps nothing. Asks check_stop().
PictureSet encode_pictures(TrainableDenoiser& model, DType type, const std::vector<CaptionedPicture>& pictures,
                           const PictureSetOptions& options, const std::filesystem::path& cache);

}  // namespace tenon::train
