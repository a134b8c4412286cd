#include "tenon/pipelines/language_model.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/chat_prompt.h"
#include "tenon/pipelines/component_weights.h"
#include "tenon/pipelines/generation_config.h"
#include "tenon/pipelines/model_files.h"
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

}  // namespace

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
  auto m = std::make_shared<LanguageModel>();
  m->random_seed_ = random_seed;
  if (spec.starts_with(kRandomModel)) {
    m->name_ = spec;
    m->config_ = decoder_preset(spec.substr(kRandomModel.size())).config;
    return m;
  }
  m->open_path(find_model(spec));
  return m;
}

void LanguageModel::open_path(const fs::path& path) {
  name_ = model_name(path);
  if (const fs::path gguf = gguf_of(path); !gguf.empty())
    open_gguf(gguf);
  else
    open_folder(path);
}

ModelReport LanguageModel::inspect(const fs::path& path) {
  const auto opened = std::make_shared<LanguageModel>();
  LanguageModel& m = *opened;
  ModelReport out{.held = opened};
  try {
    m.open_path(path);
  } catch (const Error& e) {
    const bool listed = !m.tensors_.empty() || !m.gguf_tensors_.tensors.empty();
    if (e.kind() != ErrorKind::Model || !listed) throw;
    out.problem = e.what();
  }
  const DecoderConfig& c = m.config_;
  const auto number = [](int64_t n) { return std::to_string(n); };
  out.kind = m.gguf_ ? "GGUF file" : "transformers folder";
  out.architecture = "decoder language model " + c.family + ", width " + number(c.width) + ", " + number(c.layers) +
                     " layers, " + number(c.heads) + " heads of " + number(c.head_width) + " over " +
                     number(c.key_heads) + ", " + number(c.vocabulary) + " tokens, " + number(c.positions) +
                     " positions";
  out.tokenizer = m.tokenizer_ ? path.string() : "";
  if (!m.tokenizer_ && out.problem.empty()) out.notes.emplace_back("no tokenizer: it cannot generate text");
  if (m.tokenizer_ && !m.tokenizer_->chat_template())
    out.notes.emplace_back("no chat template: it completes texts but cannot chat");
  out.unexpected = m.gguf_tensors_.unexpected;
  Component all = m.component(path);
  out.differences.emplace(all.name, check_weights(m.shapes(), all.shapes()));
  out.usable = out.problem.empty();
  out.components.emplace(all.name, std::move(all));
  return out;
}

Component LanguageModel::component(const fs::path& path) const {
  Component out;
  out.name = "decoder";
  out.tensors = tensors_;
  out.blocks = gguf_tensors_.tensors;
  out.config = saved_config_;
  out.files = stored_ ? stored_->files : std::vector<fs::path>{gguf_of(path)};
  if (stored_) out.unsupported = stored_->unsupported;
  return out;
}

void refuse_left_over(std::vector<std::string> names, const std::string& where) {
  std::erase_if(names, [](const std::string& name) {
    return name.find("rot_embd") != std::string::npos || name.ends_with("rotary_emb.inv_freq");
  });
  if (names.empty()) return;
  const bool scaled = std::ranges::find(names, "rope_freqs.weight") != names.end();
  throw Error(ErrorKind::Model, where,
              scaled ? "scaled rotary positions ('rope_freqs.weight') are not supported"
                     : "the network has no tensor '" + names.front() + "'" +
                           (names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "") +
                           "; ignoring that would give wrong results");
}

namespace {

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

void LanguageModel::open_gguf(const fs::path& file) {
  gguf_ = GgufFile::open(file);
  const json config = gguf_config(*gguf_);
  // Before the tensors: inspect() compares what is listed with a configuration that is known.
  config_ = read_decoder_config(config, file.string() + " metadata (keys named as in config.json)");
  gguf_tensors_ = gguf_checkpoint(*gguf_);
  saved_config_ = config;
  WeightShapes found;
  for (const auto& [name, slice] : gguf_tensors_.tensors) found.emplace(name, slice.shape);
  const auto biased = [&](const char* layer) {
    return found.contains(std::string("model.layers.0.") + layer + ".bias");
  };
  config_.qkv_bias = biased("self_attn.q_proj");
  config_.output_bias = biased("self_attn.o_proj");
  config_.mlp_bias = config_.family == "llama" && (biased("mlp.gate_proj") || biased("mlp.down_proj"));
  savable_ = describe_biases(config_, saved_config_);
  std::vector<std::string> left = required(shapes(), found).unexpected;
  left.insert(left.end(), gguf_tensors_.unexpected.begin(), gguf_tensors_.unexpected.end());
  refuse_left_over(std::move(left), file.string());
  if (gguf_->has("tokenizer.ggml.model")) tokenizer_ = ByteLevelTokenizer::from_gguf(*gguf_);
  read_stop_ids(config, file.string());
}

void LanguageModel::open_folder(const fs::path& folder) {
  if (!folder_exists(folder) || !file_exists(folder / kLanguageConfig))
    throw Error(
        ErrorKind::Model, folder.string(),
        "is not a language model: expected a .gguf file, or a folder with config.json and model.safetensors",
        file_exists(folder / kAdapterConfig) ? "it is an adapter: pass it with --lora, and its model with -m" : "");
  const std::string where = (folder / kLanguageConfig).string();
  const json config = read_json(folder / kLanguageConfig);
  config_ = read_decoder_config(config, where);
  folder_ = folder;
  saved_config_ = config;
  const fs::path file = weights_in(folder, "model");
  TENON_CHECK(Model, !file.empty(), folder.string())
      << "has no weights; looked for model.safetensors, model.safetensors.index.json and one *.safetensors";
  stored_ = open_weights(file);
  WeightShapes found;
  for (const auto& [stored, view] : stored_->tensors) {
    const bool bare = !stored.starts_with("model.") && !stored.starts_with("lm_head.");
    const std::string name = bare ? "model." + stored : stored;
    TENON_CHECK(Model, tensors_.emplace(name, view).second, file.string()) << "two tensors map to '" << name << "'";
    found.emplace(name, view.shape);
  }
  // transformers ties only weights that are equal.
  if (config_.tied && tensors_.contains(kHeadName) && tensors_.contains(kEmbeddingName) &&
      !same_tensor(tensors_.at(kHeadName), tensors_.at(kEmbeddingName))) {
    config_.tied = false;
    saved_config_["tie_word_embeddings"] = false;
  }
  const WeightShapes network = shapes();
  std::vector<std::string> left = required(network, found).unexpected;
  require_floats(network, tensors_, file.string());
  std::erase_if(left, [&](const std::string& name) { return !in_network(name, network); });
  refuse_left_over(std::move(left), file.string());
  if (file_exists(folder / "tokenizer.json") || file_exists(folder / "vocab.json"))
    tokenizer_ = ByteLevelTokenizer::from_folder(folder);
  // Where there is a generation_config.json, transformers does not read how to draw from config.json.
  const bool own = file_exists(folder / kGenerationConfig);
  const std::string generation_file = own ? (folder / kGenerationConfig).string() : where;
  const json generation = own ? read_json(folder / kGenerationConfig) : config;
  sampling_ = read_sampling(generation, generation_file);
  if (const auto other = unfollowed_settings(generation); !other.empty())
    spdlog::warn("{}: ignoring {}, so that texts may differ from transformers'", shown(generation_file), joined(other));
  // Unlike in transformers, config.json also ends texts where generation_config.json names no token.
  const bool ends = ConfigReader(generation, generation_file).has(kStopIds);
  read_stop_ids(ends ? generation : config, ends ? generation_file : where);
}

WeightReport LanguageModel::required(const WeightShapes& network, const WeightShapes& found) const {
  WeightReport out = check_weights(network, found);
  require_weights(out, name_);
  return out;
}

// Every step compares the token drawn with each of them.
constexpr size_t kMaxStopIds = 64;

// A number or an array of them, which may be empty; if absent, the tokenizer's. No text ends with an id outside the
// vocabulary, so that such ids have no effect in transformers either.
void LanguageModel::read_stop_ids(const json& config, const std::string& where) {
  ConfigReader r(config, where);
  if (r.has(kStopIds)) {
    const json& given = config.at(kStopIds);
    constexpr int64_t kMost = int64_t{1} << 53;
    const bool none = given.is_array() && given.empty();
    std::vector<int64_t> ids = none ? std::vector<int64_t>() : r.integers(kStopIds, {}, 0, -kMost, kMost);
    const auto outside = [&](int64_t id) { return id < 0 || id >= config_.vocabulary; };
    if (const auto first = std::ranges::find_if(ids, outside); first != ids.end())
      spdlog::warn("{}: {}: ignoring {}, which is outside the vocabulary of {} tokens", shown(where), kStopIds, *first,
                   config_.vocabulary);
    std::erase_if(ids, outside);
    if (ids.size() > kMaxStopIds) r.refuse(kStopIds, "at most " + std::to_string(kMaxStopIds) + " tokens");
    for (const int64_t id : ids) stop_ids_.push_back(static_cast<int32_t>(id));
  }
  if (!r.has(kStopIds) && tokenizer_ && tokenizer_->eos_id()) stop_ids_ = {*tokenizer_->eos_id()};
}

const ByteLevelTokenizer& LanguageModel::tokenizer() const {
  if (tokenizer_) return *tokenizer_;
  TENON_CHECK(Model, stored_ || gguf_, name_)
      << "random weights have no tokenizer, so they cannot generate text; " << kUsesOfRandomWeights;
  throw Error(ErrorKind::Model, name_, "has no tokenizer",
              "put tokenizer.json, or vocab.json and merges.txt, beside config.json");
}

const nlohmann::ordered_json& LanguageModel::saved_config() const {
  TENON_CHECK(Model, stored_ || gguf_, name_) << "has random weights: there is no stored config to save a model with";
  TENON_CHECK(Model, savable_, name_) << "has biases in only some of attention's projections, which no config.json of '"
                                      << config_.family << "' describes; expected none or all of them";
  return saved_config_;
}

std::map<std::string, std::string> LanguageModel::saved_files() const {
  if (gguf_) return ByteLevelTokenizer::files_of_gguf(*gguf_);
  std::map<std::string, std::string> out;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "added_tokens.json",
                           "special_tokens_map.json", "chat_template.jinja", kGenerationConfig})
    if (file_exists(folder_ / name)) out.emplace(name, read_file(folder_ / name));
  return out;
}

std::unique_ptr<WeightSource> LanguageModel::weights() const {
  if (stored_) return tensor_weights(tensors_);
  if (gguf_) return gguf_weights(gguf_tensors_.tensors, name_);
  return random_weights(shapes(), random_seed_);
}

std::string LanguageModel::fingerprint() const {
  constexpr size_t kFirstBytes = 4096;
  std::string all = saved_config_.is_null() ? name_ : json_text(saved_config_);
  const auto add = [&](const std::string& name, const Shape& shape, std::span<const std::byte> bytes) {
    const auto first = bytes.first(std::min(bytes.size(), kFirstBytes));
    all += "\n" + name + shape.str();
    all.append(reinterpret_cast<const char*>(first.data()), first.size());
  };
  for (const auto& [name, t] : tensors_) add(name, t.shape, {t.data, t.size});
  for (const auto& [name, slice] : gguf_tensors_.tensors) add(name, slice.shape, slice.tensor->data);
  return sha256_hex(std::as_bytes(std::span(all)));
}

std::string LanguageModel::render_chat(const nlohmann::ordered_json& messages) const {
  return tenon::render_chat(tokenizer(), messages, name_);
}

std::vector<int32_t> LanguageModel::encode_chat(const nlohmann::ordered_json& messages) const {
  return tenon::encode_chat(tokenizer(), messages, name_);
}

}  // namespace tenon
