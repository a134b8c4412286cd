#include "tenon/pipelines/families/z_image/model.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/component_weights.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *kPreset = "z-image", *kComponentConfig = "config.json";
constexpr const char* kTextPrefix = "model.";  // of names that bare exports of the encoder lack

json turbo_scheduler() {
  return {{"_class_name", "FlowMatchEulerDiscreteScheduler"},
          {"num_train_timesteps", 1000},
          {"shift", 3.0},
          {"use_dynamic_shifting", false}};
}

DecoderConfig published_encoder() {
  const auto& all = decoder_presets();
  return std::ranges::find(all, std::string("qwen3-4b"), &DecoderPreset::name)->config;
}

json config_of(const fs::path& folder, const char* component) {
  const fs::path file = folder / component / kComponentConfig;
  TENON_CHECK(Model, file_exists(file), folder.string()) << "has no " << component << "/" << kComponentConfig;
  return read_json(file);
}

// A component's weights, out of `stem`.safetensors, its index, or the folder's only .safetensors file.
Component open_component(const fs::path& folder, const std::string& name, const std::string& stem,
                         std::vector<std::shared_ptr<const void>>& keep) {
  Component out;
  out.name = name;
  const fs::path file = weights_in(folder / name, stem);
  TENON_CHECK(Model, !file.empty(), (folder / name).string())
      << "has no weights; looked for " << stem << ".safetensors, " << stem
      << ".safetensors.index.json and one *.safetensors";
  WeightSet set = open_weights(file);
  out.tensors = std::move(set.tensors);
  out.unsupported = std::move(set.unsupported);
  out.config = config_of(folder, name.c_str());
  out.files = {file};
  keep.insert(keep.end(), set.bytes.begin(), set.bytes.end());
  return out;
}

// Names as transformers' whole model has them; no output head.
void name_text_tensors(Component& c) {
  std::map<std::string, TensorView> named;
  for (const auto& [stored, view] : c.tensors) {
    if (stored.starts_with("lm_head.")) {
      c.ignored.push_back(stored);
      continue;
    }
    const std::string name = stored.starts_with(kTextPrefix) ? stored : kTextPrefix + stored;
    TENON_CHECK(Model, named.emplace(name, view).second, c.files.front().string())
        << "two tensors stand for '" << shown(name) << "'";
  }
  c.tensors = std::move(named);
}

}  // namespace

bool ZImageModel::reads(const fs::path& path) {
  try {
    const fs::path file = path / "transformer" / kComponentConfig;
    if (!folder_exists(path / "transformer") || !file_exists(file)) return false;
    const json config = read_json(file);
    return config.is_object() && config.value("_class_name", json()) == json("ZImageTransformer2DModel");
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Cancelled) throw;
    return false;  // whoever opens it says what is wrong
  }
}

std::shared_ptr<const ZImageModel> ZImageModel::open(const std::string& spec, uint64_t random_seed) {
  auto m = std::make_shared<ZImageModel>();
  m->random_seed_ = random_seed;
  if (spec.starts_with(kRandomModel)) {
    const std::string name = spec.substr(kRandomModel.size());
    if (name != kPreset) refuse_preset(name, {kPreset});
    m->name_ = spec;
    m->text_ = published_encoder();
    m->vae_ = flux_vae();
    m->scheduler_config_ = turbo_scheduler();
    return m;
  }
  const fs::path path = find_model(spec);
  m->name_ = model_name(path);
  m->open_folder(path);
  return m;
}

void ZImageModel::open_folder(const fs::path& folder) {
  const auto config_file = [&](const char* name) { return (folder / name / kComponentConfig).string(); };
  transformer_ = z_image_config(config_of(folder, "transformer"), config_file("transformer"));
  text_ = read_decoder_config(config_of(folder, "text_encoder"), config_file("text_encoder"));
  vae_ = vae_config(config_of(folder, "vae"), config_file("vae"));
  check_parts();
  const fs::path scheduler = folder / "scheduler" / "scheduler_config.json";
  scheduler_file_ = scheduler.string();
  scheduler_config_ = file_exists(scheduler) ? read_json(scheduler) : turbo_scheduler();
  TENON_CHECK(Model, is_flow_matching(scheduler_config()), scheduler_file_)
      << "names the scheduler '" << shown(scheduler_config().class_name())
      << "'; expected one of flow matching, such as FlowMatchEulerDiscreteScheduler";
  const std::string stem = "diffusion_pytorch_model";
  for (const auto& [name, file] :
       {std::pair<const char*, std::string>{"transformer", stem}, {"vae", stem}, {"text_encoder", "model"}})
    components_.emplace(name, open_component(folder, name, file, files_));
  name_text_tensors(components_.at("text_encoder"));
  const fs::path words = folder / "tokenizer";
  TENON_CHECK(Model, folder_exists(words), folder.string())
      << "has no folder tokenizer/ with tokenizer.json, or vocab.json and merges.txt";
  tokenizer_ = ByteLevelTokenizer::from_folder(words);
  TENON_CHECK(Model, tokenizer_->vocab_size() <= text_.vocabulary, words.string())
      << "has " << tokenizer_->vocab_size() << " tokens, the text encoder an embedding of " << text_.vocabulary;
  TENON_CHECK(Model, tokenizer_->chat_template(), words.string())
      << "has no chat template: prompts are turns of a conversation to this model";
  chat_ = ChatTemplate::compile(*tokenizer_->chat_template(), words.string() + " chat template");
}

void ZImageModel::check_parts() const {
  TENON_CHECK(Model, text_.width == transformer_.text_width, name_)
      << "text_encoder/config.json says hidden_size " << text_.width << ", transformer/config.json cap_feat_dim "
      << transformer_.text_width << ": they do not fit";
  TENON_CHECK(Model, vae_.latent_channels == transformer_.channels, name_)
      << "vae/config.json says latent_channels " << vae_.latent_channels << ", transformer/config.json in_channels "
      << transformer_.channels << ": they do not fit";
  TENON_CHECK(Model, text_.layers > 1, name_)
      << "a text encoder of one layer has no hidden states in front of its last";
}

std::vector<int32_t> ZImageModel::tokens(const std::string& prompt) const {
  TENON_CHECK(Model, tokenizer_, name_) << "random weights have no tokenizer: nothing can be drawn with them, but "
                                           "`tenon explain`, bench, verify and compile take them";
  nlohmann::ordered_json variables{{"messages", {{{"role", "user"}, {"content", prompt}}}},
                                   {"add_generation_prompt", true},
                                   {"enable_thinking", true}};
  return tokenizer_->encode(chat_->render(variables));
}

WeightShapes ZImageModel::shapes(const std::string& component) const {
  if (component == "transformer") return z_image_weights(transformer_);
  if (component == "vae") return vae_weights(vae_);
  Graph g;
  const Expr tokens = input(g, "tokens", DType::I32, {1, 1}, Rate::Prompt);
  return weights_of(std::array{decoder_states(text_, tokens, text_layers(), nn::kF32)});
}

std::unique_ptr<WeightSource> ZImageModel::weights(const std::string& component) const {
  if (components_.empty()) return random_weights(shapes(component), random_seed_);
  const Component& c = components_.at(component);
  WeightShapes found;
  for (const auto& [name, view] : c.tensors) found.emplace(name, view.shape);
  for (const auto& [name, tensor] : c.unsupported) c.at(name);  // says why
  require_weights(check_weights(shapes(component), found), name_ + " " + component);
  return component_weights(c);
}

}  // namespace tenon
