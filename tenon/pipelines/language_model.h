// A decoder language model to run: a folder as transformers writes it, a GGUF file, or a named architecture with random
// weights.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/io/gguf_checkpoint.h"
#include "tenon/io/safetensors.h"
#include "tenon/models/decoder.h"
#include "tenon/pipelines/model_report.h"
#include "tenon/pipelines/sampling.h"

namespace tenon {

class LanguageModel {
 public:
  /// `spec`: "random:NAME" or a path, as Model::open. A folder holds config.json and model.safetensors (or its index,
  /// or one other .safetensors file), tokenizer files and maybe generation_config.json; or it holds one .gguf file.
  /// Error(Model) for anything else, and for weights that are not complete.
  static std::shared_ptr<const LanguageModel> open(const std::string& spec, uint64_t random_seed = 0);
  /// True if the path holds a language model of a family that can be read.
  static bool reads(const std::filesystem::path& path);
  /// What is at a path that it reads; why it cannot be used, if so, is the report's `problem`. Error(Model) where not
  /// even a list of tensors can be had of it.
  static ModelReport inspect(const std::filesystem::path& path);

  const std::string& name() const { return name_; }
  const DecoderConfig& config() const { return config_; }
  /// Error(Model) for random weights, and for a file that came without one.
  const ByteLevelTokenizer& tokenizer() const;
  bool has_tokenizer() const { return tokenizer_.has_value(); }
  /// What the model's files say about choosing tokens; greedy where they say nothing.
  const Sampling& sampling() const { return sampling_; }
  /// Tokens that end a text: generation_config.json's, else config.json's, else the tokenizer's.
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }
  std::unique_ptr<WeightSource> weights() const;
  /// Tells one model from another without reading gigabytes, wherever its files lie: a hash of its configuration and of
  /// the names, shapes and first bytes of its tensors. Of random weights: of their name.
  std::string fingerprint() const;
  /// config.json of a folder that holds a model like this one, and the files beside it and the weights (tokenizer,
  /// generation_config.json) by name: those of its own folder as they are, or what they would be for a GGUF's model.
  /// Error(Model) for random weights.
  const nlohmann::ordered_json& saved_config() const;
  std::map<std::string, std::string> saved_files() const;
  WeightShapes shapes() const { return decoder_weights(config_); }
  /// The text that the model's chat template makes of a conversation, with the beginning of an answer behind it.
  /// Error(Model) if there is no template; Error(Usage) if it refuses the messages.
  std::string render_chat(const nlohmann::ordered_json& messages) const;
  /// Ids of that text. Control tokens are the template's own: those that a message's text spells are so many letters.
  /// Errors as render_chat.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& messages) const;

 private:
  void open_path(const std::filesystem::path& path);
  void open_folder(const std::filesystem::path& folder);
  void open_gguf(const std::filesystem::path& file);
  void read_generation_config(const nlohmann::json& config, const std::string& where);
  void read_stop_ids(const nlohmann::json& config, const std::string& where);
  WeightReport required(const WeightShapes& network, const WeightShapes& found) const;
  Component component(const std::filesystem::path& path) const;

  std::string name_;
  std::filesystem::path folder_;  // if it is one, with its config.json
  nlohmann::ordered_json saved_config_;
  DecoderConfig config_;
  std::optional<WeightSet> stored_;
  std::map<std::string, TensorView> tensors_;  // by transformers' names
  std::optional<GgufFile> gguf_;
  GgufCheckpoint gguf_tensors_;
  std::optional<ByteLevelTokenizer> tokenizer_;
  Sampling sampling_;
  std::vector<int32_t> stop_ids_;
  uint64_t random_seed_ = 0;
};

}  // namespace tenon
