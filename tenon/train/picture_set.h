// Training pictures: a folder of PNG and JPEG files with captions, encoded once by a model's frozen parts.
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

/// The pictures of a folder (.png, .jpg, .jpeg, .jfif, in any case) ordered by name, each with the text of the .txt
/// file of the same name, or else (no file, or one without text) `caption`. Text is UTF-8; a byte order mark and
/// surrounding blanks are removed. Error(Usage) names the folder or file: no such folder, no pictures, a picture that
/// cannot be read or has no caption (also one of another format), a caption without a picture. Warns of subfolders,
/// which are not read, and of empty captions.
std::vector<CaptionedPicture> read_pictures(const std::filesystem::path& folder,
                                            const std::optional<std::string>& caption);

struct PictureSetOptions {
  /// Each picture is assigned the size of the nearest aspect ratio, scaled to cover it, and cropped to the centre.
  std::vector<PictureSize> sizes;
  bool flip = false;  ///< also encode each picture mirrored
};

/// A picture and its caption, encoded by a model's frozen parts.
struct EncodedPicture {
  std::vector<std::vector<float>> moments;  ///< of the picture, then with flips of the mirrored one
  size_t text = 0;                          ///< index into PictureSet::texts
  PictureSize size;                         ///< the size that it was fitted to
};

struct PictureSet {
  std::vector<EncodedPicture> pictures;
  std::vector<TextFeatures> texts;
  int64_t made = 0;  ///< number of pictures and texts encoded now; the rest were cached
  /// Depends on every picture, caption, size and on the model.
  std::string sha256;
};

/// Identifies a model, wherever its files are, and the type that it computes in.
std::string identity_of(const TrainableDenoiser& model, DType type);

/// Creates a cache folder; does nothing for an empty path. Error(Usage) if that fails.
void make_cache(const std::filesystem::path& folder);

/// Encodes pictures. Encodings of the same pictures, texts, sizes, type and model are read from `cache` if present,
/// else added to it. An empty `cache` keeps nothing. Asks check_stop().
PictureSet encode_pictures(TrainableDenoiser& model, DType type, const std::vector<CaptionedPicture>& pictures,
                           const PictureSetOptions& options, const std::filesystem::path& cache);

}  // namespace tenon::train
