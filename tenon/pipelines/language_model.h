// A decoder language model ready to use: a folder as transformers writes it, a GGUF file, or a named architecture with
// random weights.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tenon/backend/weight_source.h"
#include "tenon/core/dtype.h"
#include "tenon/core/shape.h"
#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/pipelines/sampling.h"

namespace tenon {

struct DecoderConfig;
struct ModelReport;

/// The type in which text is made unless another is asked for. A token waits for the weights to arrive, so weights of
/// 16 bits are faster even where they must be widened.
inline constexpr DType kTextType = DType::BF16;

class LanguageModel {
  struct State;

 public:
  /// `spec`: "random:NAME" or a path, as Model::open. A folder holds config.json and model.safetensors (or its index,
  /// or one other .safetensors file), tokenizer files and optionally generation_config.json; or it holds one .gguf
  /// file. Error(Model) for anything else, and for incomplete weights.
  static std::shared_ptr<const LanguageModel> open(const std::string& spec, uint64_t random_seed = 0);
  /// True if the path holds a language model of a supported family.
  static bool reads(const std::filesystem::path& path);
  /// Describes what is at a path that it reads; if it cannot be used, the report's `problem` says why. Error(Model) if
  /// not even its tensors can be listed.
  static ModelReport inspect(const std::filesystem::path& path);

  explicit LanguageModel(std::unique_ptr<const State> state);  ///< made by open()
  ~LanguageModel();

  const std::string& name() const;
  const DecoderConfig& config() const;
  /// Error(Model) for random weights, and for a file without a tokenizer.
  const ByteLevelTokenizer& tokenizer() const;
  bool has_tokenizer() const;
  /// The model files' settings for sampling; greedy if they have none.
  const Sampling& sampling() const;
  /// Tokens that end a text: from generation_config.json, else config.json, else the tokenizer.
  const std::vector<int32_t>& stop_ids() const;
  std::unique_ptr<WeightSource> weights() const;
  /// Identifies a model without reading gigabytes, wherever its files are: a hash of its configuration and of the
  /// names, shapes and first bytes of its tensors. For random weights, of their name.
  std::string fingerprint() const;
  /// For saving a model like this one: config.json, and by name the other files besides the weights (tokenizer,
  /// generation_config.json). From a folder they are copied unchanged; for a GGUF they are generated. Error(Model) for
  /// random weights, and for biases that no config.json describes.
  const nlohmann::ordered_json& saved_config() const;
  std::map<std::string, std::string> saved_files() const;
  /// Names and shapes of the weights.
  std::map<std::string, Shape> shapes() const;
  /// A conversation in the model's chat template, followed by the beginning of an answer. Error(Model) if there is no
  /// template; Error(Usage) if it refuses the messages.
  std::string render_chat(const nlohmann::ordered_json& messages) const;
  /// Ids of that text. Only the template can produce control tokens; those spelled out in a message are encoded as
  /// plain characters. Errors as render_chat.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& messages) const;

 private:
  std::unique_ptr<const State> state_;
};

}  // namespace tenon
