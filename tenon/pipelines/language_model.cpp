#include "tenon/pipelines/language_model.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/gguf_checkpoint.h"
#include "tenon/io/json.h"
#include "tenon/io/safetensors.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/decoder.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/chat_prompt.h"
#include "tenon/pipelines/component_weights.h"
#include "tenon/pipelines/generation_config.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/model_report.h"
#include "tenon/pipelines/random_weights.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
using nlohmann::json;

constexpr const char *kLanguageConfig = "config.json", *kGenerationConfig = "generation_config.json",
                     *kStopIds = "eos_token_id";
constexpr const char *kHeadName = "lm_head.weight", *kEmbeddingName = "model.embed_tokens.weight";

bool is_family(const std::string& type) { return type == "llama" || type == "qwen2" || type == "qwen3"; }

// transformers' class for a family.
std::string architecture_class(const std::string& type) {
  return (type == "llama" ? "Llama" : type == "qwen2" ? "Qwen2" : "Qwen3") + std::string("ForCausalLM");
}

// Completes a GGUF's config.json for the network `c`. Which biases there are is a matter of the class in transformers:
// Qwen2 is Llama with those of queries, keys and values. False if no class has just these.
bool describe_biases(const DecoderConfig& c, nlohmann::ordered_json& config) {
  const bool qwen3 = c.family == "qwen3", qwen2 = !qwen3 && c.qkv_bias && !c.output_bias && !c.mlp_bias;
  config["model_type"] = qwen3 ? "qwen3" : qwen2 ? "qwen2" : "llama";
  config["architectures"] = {architecture_class(config["model_type"])};
  if (qwen2) return true;
  if (c.output_bias) config["attention_bias"] = true;
  if (c.mlp_bias) config["mlp_bias"] = true;
  return c.qkv_bias == c.output_bias;
}

fs::path gguf_of(const fs::path& path) {
  if (!folder_exists(path)) return path.extension() == ".gguf" ? path : fs::path();
  return file_exists(path / kLanguageConfig) ? fs::path() : only_file(path, ".gguf");
}

const DecoderPreset& decoder_preset(const std::string& name) {
  std::vector<std::string> known;
  for (const DecoderPreset& p : decoder_presets()) {
    if (p.name == name) return p;
    known.push_back(p.name);
  }
  refuse_preset(name, known);
}

bool same_tensor(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.size == b.size && std::memcmp(a.data, b.data, a.size) == 0;
}

// Whether a tensor belongs next to the network's weights: in one of its layers, or named like another weight except for
// the last part. Other tensors in a folder (layers after the last, heads for other uses) are ignored, as in
// transformers.
bool in_network(const std::string& name, const WeightShapes& network) {
  constexpr std::string_view kLayers = "model.layers.";
  const size_t end = name.starts_with(kLayers) ? name.find('.', kLayers.size()) : name.rfind('.');
  if (end == std::string::npos) return false;
  const std::string beside = name.substr(0, end + 1);
  const auto next = network.lower_bound(beside);
  return next != network.end() && next->first.starts_with(beside);
}

}  // namespace

struct LanguageModel::State {
  void open_path(const fs::path& path);
  void open_folder(const fs::path& path);
  void open_gguf(const fs::path& file);
  void read_stop_ids(const json& settings, const std::string& where);
  WeightReport required(const WeightShapes& network, const WeightShapes& found) const;
  Component component(const fs::path& path) const;

  std::string name;
  fs::path folder;  // the model's folder, if it is one with a config.json
  nlohmann::ordered_json saved_config;
  DecoderConfig config;
  std::optional<WeightSet> stored;
  std::map<std::string, TensorView> tensors;  // by transformers' names
  std::optional<GgufFile> gguf;
  GgufCheckpoint gguf_tensors;
  std::optional<ByteLevelTokenizer> tokenizer;
  Sampling sampling;
  std::vector<int32_t> stop_ids;
  bool savable = true;  // as a folder with a config.json
  uint64_t random_seed = 0;
};

LanguageModel::LanguageModel(std::unique_ptr<const State> state) : state_(std::move(state)) {}
LanguageModel::~LanguageModel() = default;
const std::string& LanguageModel::name() const { return state_->name; }
const DecoderConfig& LanguageModel::config() const { return state_->config; }
bool LanguageModel::has_tokenizer() const { return state_->tokenizer.has_value(); }
const Sampling& LanguageModel::sampling() const { return state_->sampling; }
const std::vector<int32_t>& LanguageModel::stop_ids() const { return state_->stop_ids; }
WeightShapes LanguageModel::shapes() const { return decoder_weights(state_->config); }

bool LanguageModel::reads(const fs::path& path) {
  try {
    if (const fs::path gguf = gguf_of(path); !gguf.empty()) return is_family(GgufFile::open(gguf).architecture());
    if (!folder_exists(path) || !file_exists(path / kLanguageConfig)) return false;
    const json config = read_json(path / kLanguageConfig);
    const auto type = config.is_object() ? config.find("model_type") : config.end();
    return config.is_object() && type != config.end() && type->is_string() && is_family(type->get<std::string>());
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Cancelled) throw;
    return false;  // opening it reports the error
  }
}

std::shared_ptr<const LanguageModel> LanguageModel::open(const std::string& spec, uint64_t random_seed) {
  auto state = std::make_unique<State>();
  state->random_seed = random_seed;
  if (spec.starts_with(kRandomModel)) {
    state->name = spec;
    state->config = decoder_preset(spec.substr(kRandomModel.size())).config;
  } else {
    state->open_path(find_model(spec));
  }
  return std::make_shared<LanguageModel>(std::move(state));
}

void LanguageModel::State::open_path(const fs::path& path) {
  name = model_name(path);
  if (const fs::path file = gguf_of(path); !file.empty())
    open_gguf(file);
  else
    open_folder(path);
}

ModelReport LanguageModel::inspect(const fs::path& path) {
  const auto opened = std::make_shared<State>();
  State& m = *opened;
  ModelReport out{.held = opened};
  try {
    m.open_path(path);
  } catch (const Error& e) {
    const bool listed = !m.tensors.empty() || !m.gguf_tensors.tensors.empty();
    if (e.kind() != ErrorKind::Model || !listed) throw;
    out.problem = e.what();
  }
  const DecoderConfig& c = m.config;
  const auto number = [](int64_t n) { return std::to_string(n); };
  out.kind = m.gguf ? "GGUF file" : "transformers folder";
  out.architecture = "decoder language model " + c.family + ", width " + number(c.width) + ", " + number(c.layers) +
                     " layers, " + number(c.heads) + " heads of " + number(c.head_width) + " over " +
                     number(c.key_heads) + ", " + number(c.vocabulary) + " tokens, " + number(c.positions) +
                     " positions";
  out.tokenizer = m.tokenizer ? path.string() : "";
  if (!m.tokenizer && out.problem.empty()) out.notes.emplace_back("no tokenizer: it cannot generate text");
  if (m.tokenizer && !m.tokenizer->chat_template())
    out.notes.emplace_back("no chat template: it completes texts but cannot chat");
  out.unexpected = m.gguf_tensors.unexpected;
  Component all = m.component(path);
  out.differences.emplace(all.name, check_weights(decoder_weights(c), all.shapes()));
  out.usable = out.problem.empty();
  out.components.emplace(all.name, std::move(all));
  return out;
}

Component LanguageModel::State::component(const fs::path& path) const {
  Component out;
  out.name = "decoder";
  out.tensors = tensors;
  out.blocks = gguf_tensors.tensors;
  out.config = saved_config;
  out.files = stored ? stored->files : std::vector<fs::path>{gguf_of(path)};
  if (stored) out.unsupported = stored->unsupported;
  return out;
}

void LanguageModel::State::open_gguf(const fs::path& file) {
  gguf = GgufFile::open(file);
  const json metadata = gguf_config(*gguf);
  // Before the tensors: inspect() compares what is listed with a configuration that is known.
  config = read_decoder_config(metadata, file.string() + " metadata (keys named as in config.json)");
  gguf_tensors = gguf_checkpoint(*gguf);
  saved_config = metadata;
  WeightShapes found;
  for (const auto& [key, slice] : gguf_tensors.tensors) found.emplace(key, slice.shape);
  const auto biased = [&](const char* layer) {
    return found.contains(std::string("model.layers.0.") + layer + ".bias");
  };
  config.qkv_bias = biased("self_attn.q_proj");
  config.output_bias = biased("self_attn.o_proj");
  config.mlp_bias = config.family == "llama" && (biased("mlp.gate_proj") || biased("mlp.down_proj"));
  savable = describe_biases(config, saved_config);
  std::vector<std::string> left = required(decoder_weights(config), found).unexpected;
  left.insert(left.end(), gguf_tensors.unexpected.begin(), gguf_tensors.unexpected.end());
  refuse_left_over(std::move(left), file.string());
  if (gguf->has("tokenizer.ggml.model")) tokenizer = ByteLevelTokenizer::from_gguf(*gguf);
  read_stop_ids(metadata, file.string());
}

void LanguageModel::State::open_folder(const fs::path& path) {
  if (!folder_exists(path) || !file_exists(path / kLanguageConfig))
    throw Error(
        ErrorKind::Model, path.string(),
        "is not a language model: expected a .gguf file, or a folder with config.json and model.safetensors",
        file_exists(path / kAdapterConfig) ? "it is an adapter: pass it with --lora, and its model with -m" : "");
  const std::string where = (path / kLanguageConfig).string();
  const json given = read_json(path / kLanguageConfig);
  config = read_decoder_config(given, where);
  folder = path;
  saved_config = given;
  const fs::path file = weights_in(path, "model");
  TENON_CHECK(Model, !file.empty(), path.string())
      << "has no weights; looked for model.safetensors, model.safetensors.index.json and one *.safetensors";
  stored = open_weights(file);
  WeightShapes found;
  for (const auto& [as_stored, view] : stored->tensors) {
    const bool bare = !as_stored.starts_with("model.") && !as_stored.starts_with("lm_head.");
    const std::string key = bare ? "model." + as_stored : as_stored;
    TENON_CHECK(Model, tensors.emplace(key, view).second, file.string()) << "two tensors map to '" << key << "'";
    found.emplace(key, view.shape);
  }
  // transformers ties only weights that are equal.
  if (config.tied && tensors.contains(kHeadName) && tensors.contains(kEmbeddingName) &&
      !same_tensor(tensors.at(kHeadName), tensors.at(kEmbeddingName))) {
    config.tied = false;
    saved_config["tie_word_embeddings"] = false;
  }
  const WeightShapes network = decoder_weights(config);
  std::vector<std::string> left = required(network, found).unexpected;
  require_floats(network, tensors, file.string());
  std::erase_if(left, [&](const std::string& tensor) { return !in_network(tensor, network); });
  refuse_left_over(std::move(left), file.string());
  if (file_exists(path / "tokenizer.json") || file_exists(path / "vocab.json"))
    tokenizer = ByteLevelTokenizer::from_folder(path);
  // Where there is a generation_config.json, transformers does not read how to draw from config.json.
  const bool own = file_exists(path / kGenerationConfig);
  const std::string generation_file = own ? (path / kGenerationConfig).string() : where;
  const json generation = own ? read_json(path / kGenerationConfig) : given;
  sampling = read_sampling(generation, generation_file);
  if (const auto other = unfollowed_settings(generation); !other.empty())
    spdlog::warn("{}: ignoring {}, so that texts may differ from transformers'", shown(generation_file), joined(other));
  // Unlike in transformers, config.json also ends texts where generation_config.json names no token.
  const bool ends = ConfigReader(generation, generation_file).has(kStopIds);
  read_stop_ids(ends ? generation : given, ends ? generation_file : where);
}

WeightReport LanguageModel::State::required(const WeightShapes& network, const WeightShapes& found) const {
  WeightReport out = check_weights(network, found);
  require_weights(out, name);
  return out;
}

// Every step compares the token drawn with each of them.
constexpr size_t kMaxStopIds = 64;

// A number or an array of them, which may be empty; if absent, the tokenizer's. No text ends with an id outside the
// vocabulary, so that such ids have no effect in transformers either.
void LanguageModel::State::read_stop_ids(const json& settings, const std::string& where) {
  ConfigReader r(settings, where);
  if (r.has(kStopIds)) {
    const json& given = settings.at(kStopIds);
    constexpr int64_t kMost = int64_t{1} << 53;
    const bool none = given.is_array() && given.empty();
    std::vector<int64_t> ids = none ? std::vector<int64_t>() : r.integers(kStopIds, {}, 0, -kMost, kMost);
    const auto outside = [&](int64_t id) { return id < 0 || id >= config.vocabulary; };
    if (const auto first = std::ranges::find_if(ids, outside); first != ids.end())
      spdlog::warn("{}: {}: ignoring {}, which is outside the vocabulary of {} tokens", shown(where), kStopIds, *first,
                   config.vocabulary);
    std::erase_if(ids, outside);
    if (ids.size() > kMaxStopIds) r.refuse(kStopIds, "at most " + std::to_string(kMaxStopIds) + " tokens");
    for (const int64_t id : ids) stop_ids.push_back(static_cast<int32_t>(id));
  }
  if (!r.has(kStopIds) && tokenizer && tokenizer->eos_id()) stop_ids = {*tokenizer->eos_id()};
}

const ByteLevelTokenizer& LanguageModel::tokenizer() const {
  if (state_->tokenizer) return *state_->tokenizer;
  TENON_CHECK(Model, state_->stored || state_->gguf, state_->name)
      << "random weights have no tokenizer, so they cannot generate text; " << kUsesOfRandomWeights;
  throw Error(ErrorKind::Model, state_->name, "has no tokenizer",
              "put tokenizer.json, or vocab.json and merges.txt, beside config.json");
}

const nlohmann::ordered_json& LanguageModel::saved_config() const {
  TENON_CHECK(Model, state_->stored || state_->gguf, state_->name)
      << "has random weights: there is no stored config to save a model with";
  TENON_CHECK(Model, state_->savable, state_->name)
      << "has biases in only some of attention's projections, which no config.json of '" << state_->config.family
      << "' describes; expected none or all of them";
  return state_->saved_config;
}

std::map<std::string, std::string> LanguageModel::saved_files() const {
  if (state_->gguf) return ByteLevelTokenizer::files_of_gguf(*state_->gguf);
  std::map<std::string, std::string> out;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "added_tokens.json",
                           "special_tokens_map.json", "chat_template.jinja", kGenerationConfig})
    if (file_exists(state_->folder / name)) out.emplace(name, read_file(state_->folder / name));
  return out;
}

std::unique_ptr<WeightSource> LanguageModel::weights() const {
  if (state_->stored) return tensor_weights(state_->tensors);
  if (state_->gguf) return gguf_weights(state_->gguf_tensors.tensors, state_->name);
  return random_weights(shapes(), state_->random_seed);
}

std::string LanguageModel::fingerprint() const {
  constexpr size_t kFirstBytes = 4096;
  std::string all = state_->saved_config.is_null() ? state_->name : json_text(state_->saved_config);
  const auto add = [&](const std::string& name, const Shape& shape, std::span<const std::byte> bytes) {
    const auto first = bytes.first(std::min(bytes.size(), kFirstBytes));
    all += "\n" + name + shape.str();
    all.append(reinterpret_cast<const char*>(first.data()), first.size());
  };
  for (const auto& [name, t] : state_->tensors) add(name, t.shape, {t.data, t.size});
  for (const auto& [name, slice] : state_->gguf_tensors.tensors) add(name, slice.shape, slice.tensor->data);
  return sha256_hex(std::as_bytes(std::span(all)));
}

std::string LanguageModel::render_chat(const nlohmann::ordered_json& messages) const {
  return tenon::render_chat(tokenizer(), messages, state_->name);
}

std::vector<int32_t> LanguageModel::encode_chat(const nlohmann::ordered_json& messages) const {
  return tenon::encode_chat(tokenizer(), messages, state_->name);
}

}  // namespace tenon
