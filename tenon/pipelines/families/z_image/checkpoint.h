// The files of a Z-Image model: a folder as diffusers writes it, one safetensors file with everything, or a file or
// folder for each part.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/io/component.h"
#include "tenon/models/decoder.h"
#include "tenon/models/vae.h"
#include "tenon/models/z_image.h"
#include "tenon/pipelines/image_generator.h"

namespace tenon {

/// What lies at the paths. Configurations are those of config.json or of a GGUF's metadata, or else what the weights
/// show. Components have their tensors by diffusers' and transformers' names.
struct ZImageCheckpoint {
  static constexpr const char* kFolder = "diffusers folder";
  /// Names of components.
  static constexpr const char *kTransformer = "transformer", *kText = "text_encoder", *kVae = "vae";
  std::string kind;                             ///< of what -m names: "diffusers folder", "GGUF file", ..
  std::map<std::string, Component> components;  ///< "text_encoder", "transformer", "vae": those that there are
  ZImageConfig transformer;
  DecoderConfig text;
  VaeConfig vae;
  nlohmann::json scheduler;    ///< null if there is no scheduler_config.json
  std::string scheduler_file;  ///< for messages
  std::optional<ByteLevelTokenizer> tokenizer;
  std::string tokenizer_where;                     ///< for messages; empty without one
  std::vector<std::shared_ptr<const void>> files;  ///< mapped: what the components look at

  /// True for a folder, a safetensors file or a GGUF file with Z-Image's transformer.
  static bool reads(const std::filesystem::path& path);
  /// `path` is what -m names; parts are taken from `parts` where it names them. Error(Model) names what cannot be read,
  /// is of another kind, or does not fit the rest.
  static ZImageCheckpoint open(const std::filesystem::path& path, const PartPaths& parts);
};

}  // namespace tenon
