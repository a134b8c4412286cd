#include "tenon/pipelines/families/z_image/model.h"

#include <algorithm>
#include <array>

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

constexpr const char* kPreset = "z-image";
constexpr int kTrainSteps = 1000;  // in diffusers' pipeline, whatever the scheduler's

// Parts, and the flags that give them.
constexpr std::array<std::pair<const char*, const char*>, 3> kParts = {
    {{ZImageCheckpoint::kTransformer, "--diffusion-model"},
     {ZImageCheckpoint::kText, "--llm"},
     {ZImageCheckpoint::kVae, "--vae"}}};

json turbo_scheduler() {
  return {{"_class_name", "FlowMatchEulerDiscreteScheduler"},
          {"num_train_timesteps", kTrainSteps},
          {"shift", 3.0},
          {"use_dynamic_shifting", false}};
}

DecoderConfig published_encoder() {
  const auto& all = decoder_presets();
  return std::ranges::find(all, std::string("qwen3-4b"), &DecoderPreset::name)->config;
}

}  // namespace

std::shared_ptr<const ZImageModel> ZImageModel::open(const std::string& spec, uint64_t random_seed,
                                                     const PartPaths& parts) {
  auto m = std::make_shared<ZImageModel>();
  m->random_seed_ = random_seed;
  if (spec.starts_with(kRandomModel)) {
    const std::string name = spec.substr(kRandomModel.size());
    if (name != kPreset) refuse_preset(name, {kPreset});
    TENON_CHECK(Usage, !parts.any(), spec) << "has all its parts; files cannot replace them";
    m->name_ = spec;
    m->files_.text = published_encoder();
    m->files_.vae = flux_vae();
    m->files_.scheduler = turbo_scheduler();
    return m;
  }
  const fs::path path = find_model(spec);
  m->name_ = model_name(path);
  m->open_files(path, parts);
  return m;
}

void ZImageModel::open_files(const fs::path& path, const PartPaths& parts) {
  files_ = ZImageCheckpoint::open(path, parts);
  check_parts();
  for (auto& [name, component] : files_.components) component.reshape(shapes(name));
  if (!has(ZImageCheckpoint::kVae)) files_.vae = flux_vae();  // the VAE that the transformer was trained for
  if (files_.scheduler.is_null()) files_.scheduler = turbo_scheduler();
  TENON_CHECK(Model, is_flow_matching(scheduler_config()), files_.scheduler_file)
      << "names the scheduler '" << shown(scheduler_config().class_name())
      << "'; expected a flow-matching one, such as FlowMatchEulerDiscreteScheduler";
  const int steps = scheduler_config().integer("num_train_timesteps", kTrainSteps, 1, 100000);
  TENON_CHECK(Model, steps == kTrainSteps, scheduler_config().where("num_train_timesteps"))
      << "is " << steps << ", expected " << kTrainSteps << ", the steps that the network's times are counted in";
  if (files_.kind == ZImageCheckpoint::kFolder) {
    require_tokenizer();
    read_index(path / "model_index.json");
  }
  if (!files_.tokenizer) return;
  const std::string& where = files_.tokenizer_where;
  TENON_CHECK(Model, files_.tokenizer->vocab_size() <= text().vocabulary, where)
      << "has " << files_.tokenizer->vocab_size() << " tokens, but the text encoder's embedding has "
      << text().vocabulary;
  TENON_CHECK(Model, files_.tokenizer->chat_template(), where)
      << "has no chat template, which this model needs for its prompts";
  chat_ = ChatTemplate::compile(*files_.tokenizer->chat_template(), where + " chat template");
}

void ZImageModel::read_index(const fs::path& file) {
  if (!file_exists(file)) return;
  const json index = read_json_object(file);
  read_own_defaults(defaults_, index, file.string(), size_unit(), scheduler_config());
  known_words_ = read_known_words(index);
}

void ZImageModel::check_parts() const {
  TENON_CHECK(Model, !has(ZImageCheckpoint::kText) || text().width == transformer().text_width, name_)
      << "the text encoder's hidden_size " << text().width << " does not match the transformer's cap_feat_dim "
      << transformer().text_width;
  TENON_CHECK(Model, !has(ZImageCheckpoint::kVae) || vae().latent_channels == transformer().channels, name_)
      << "the VAE's latent_channels " << vae().latent_channels << " do not match the transformer's in_channels "
      << transformer().channels;
  TENON_CHECK(Model, text().layers > 1, name_)
      << "the text encoder has one layer, expected at least 2: its last layer is not used";
}

void ZImageModel::require_tokenizer() const {
  TENON_CHECK(Model, files_.tokenizer, name_) << "has no folder tokenizer/ with tokenizer.json, or vocab.json and "
                                                 "merges.txt, and there is none beside the text encoder";
}

void ZImageModel::require_all() const {
  if (random()) return;
  for (const auto& [part, flag] : kParts)
    if (!has(part))
      throw Error(ErrorKind::Model, name_, "has no " + std::string(part) + ", which is needed to generate",
                  "pass its file or folder with " + std::string(flag));
  require_tokenizer();
}

void ZImageModel::require_usable() const {
  ImageRequest defaults;
  complete_sampling(defaults, defaults_, scheduler_config(), name_);
  for (const auto& [part, component] : components()) static_cast<void>(weights(part));
  if (components().size() == kParts.size()) require_all();
}

std::vector<int32_t> ZImageModel::tokens(const std::string& prompt) const {
  TENON_CHECK(Model, !random(), name_) << "random weights have no tokenizer, so they cannot generate images; "
                                       << kUsesOfRandomWeights;
  require_tokenizer();
  nlohmann::ordered_json variables{{"messages", {{{"role", "user"}, {"content", prompt}}}},
                                   {"add_generation_prompt", true},
                                   {"enable_thinking", true}};
  return files_.tokenizer->encode(chat_->render(variables));
}

WeightShapes ZImageModel::shapes(const std::string& component) const {
  if (component == ZImageCheckpoint::kTransformer) return z_image_weights(transformer());
  if (component == ZImageCheckpoint::kVae) return vae_weights(vae());
  Graph g;
  const Expr tokens = input(g, "tokens", DType::I32, {1, 1}, Rate::Prompt);
  return weights_of(std::array{decoder_states(text(), tokens, text_layers(), nn::kF32)});
}

LoraNames ZImageModel::lora_names() const {
  return z_image_lora_names(transformer(), shapes(ZImageCheckpoint::kText), decoder_weights(text()));
}

std::unique_ptr<WeightSource> ZImageModel::weights(const std::string& component) const {
  const WeightShapes expected = shapes(component);
  if (random()) return random_weights(expected, random_seed_);
  TENON_CHECK(Model, has(component), name_) << "has no " << component;
  const Component& c = components().at(component);
  c.require_readable();
  require_weights(check_weights(expected, c.shapes()), name_ + " " + component);
  if (c.blocks.empty()) require_floats(expected, c.tensors, name_ + " " + component);
  return component_weights(c);
}

}  // namespace tenon
