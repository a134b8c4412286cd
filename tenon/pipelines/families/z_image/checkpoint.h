// The files of a Z-Image model: a folder as diffusers writes it, one safetensors file with everything, or a file or
// folder per part.
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

/// The contents of the paths. Configurations come from config.json or a GGUF's metadata, or else are inferred from the
/// weights. Tensors have diffusers' and transformers' names.
struct ZImageCheckpoint {
  static constexpr const char* kFolder = "diffusers folder";
  /// Names of components.
  static constexpr const char *kTransformer = "transformer", *kText = "text_encoder", *kVae = "vae";
  std::string kind;                             ///< kind of the path that -m names: "diffusers folder", "GGUF file", ..
  std::map<std::string, Component> components;  ///< those present of "text_encoder", "transformer", "vae"
  ZImageConfig transformer;
  DecoderConfig text;
  VaeConfig vae;
  nlohmann::json scheduler;    ///< null if there is no scheduler_config.json
  std::string scheduler_file;  ///< for messages
  std::optional<ByteLevelTokenizer> tokenizer;
  std::string tokenizer_where;                     ///< for messages; empty without one
  std::vector<std::shared_ptr<const void>> files;  ///< mapped files that the components point into

  /// True for a folder, safetensors file or GGUF file that contains Z-Image's transformer.
  static bool reads(const std::filesystem::path& path);
  /// `path` is what -m names; `parts` overrides the parts that it names. Error(Model) names what cannot be read, is of
  /// another kind, or does not fit the rest.
  static ZImageCheckpoint open(const std::filesystem::path& path, const PartPaths& parts);
};

}  // namespace tenon
