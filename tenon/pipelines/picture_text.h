// What a picture says about itself: the text chunks of its PNG file. Equal requests give equal texts: nothing in them
// depends on when, how fast or on how many threads it was drawn.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "tenon/pipelines/image_generator.h"

namespace tenon {

/// Name and SHA-256 of a model's weights.
struct ModelText {
  std::string name;
  std::string sha256;  ///< empty for random weights; of several files: of the list of their hashes
};

/// The program that drew a picture.
struct MadeBy {
  std::string version;  ///< "0.1.0"
  std::string commit;   ///< may be empty
};

/// SHA-256 of a file, or of the list of several files' hashes; empty for none. Hashes of large files are kept in the
/// cache folder by path, size and time. Asks check_stop().
std::string hash_of_files(std::span<const std::filesystem::path> files);
/// Hashes the model's files so.
ModelText model_text(const ImageGenerator& model);

/// Settings, seed, noise levels and pixel hash of image i.
nlohmann::ordered_json picture_json(const ImageResult& result, size_t i);
/// The chunks "parameters" (as A1111's web UI writes it) and "tenon" (JSON).
ImageText picture_text(const ImageResult& result, size_t i, const ModelText& model, const MadeBy& by);

}  // namespace tenon
