// A picture's own description: the text chunks of its PNG file. Equal requests give equal texts: they do not depend on
// when, how fast or on how many threads it was drawn.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "tenon/pipelines/image_generator.h"

namespace tenon {

/// A model's name and the SHA-256 of its weights.
struct ModelText {
  std::string name;
  std::string sha256;  ///< empty for random weights; for several files the hash of the list of their hashes
};

/// The program that drew a picture.
struct MadeBy {
  std::string version;  ///< "0.1.0"
  std::string commit;   ///< may be empty
};

/// SHA-256 of a file, or of the list of several files' hashes; empty for no files. Hashes of large files are cached in
/// the cache folder, keyed by path, size and time. Asks check_stop().
std::string hash_of_files(std::span<const std::filesystem::path> files);
/// ModelText of a model, with hash_of_files of its files.
ModelText model_text(const ImageGenerator& model);

/// Settings, seed, noise levels and pixel hash of image i.
nlohmann::ordered_json picture_json(const ImageResult& result, size_t i);
/// The chunks "parameters" (as AUTOMATIC1111's web UI writes it) and "tenon" (JSON).
ImageText picture_text(const ImageResult& result, size_t i, const ModelText& model, const MadeBy& by);

}  // namespace tenon
