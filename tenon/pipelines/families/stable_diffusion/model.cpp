#include "tenon/pipelines/families/stable_diffusion/model.h"

#include <limits>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/image.h"
#include "tenon/io/json.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/component_weights.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {

GenerationDefaults defaults_of(const StableDiffusionCheckpoint& c, const VaeConfig& vae, const Settings& scheduler) {
  GenerationDefaults d;
  const int64_t factor = vae.downsampling();
  if (c.has("unet") && c.component("unet").config.is_object()) {
    const Component& unet = c.component("unet");
    ConfigReader r(unet.config, unet.config_file());
    const int64_t most = std::max<int64_t>(kMaxImageSide / factor, 1);
    if (r.has("sample_size")) {
      const std::vector<int64_t> sides = r.integers("sample_size", {}, 2, 1, most);
      d.height = sides[0] * factor;
      d.width = sides[1] * factor;
    }
  }
  read_own_defaults(d, c.model_index(), (c.path() / "model_index.json").string(), factor, scheduler);
  return d;
}

constexpr const char* kStepsOffset = "steps_offset";
constexpr const char* kClipSample = "clip_sample";

// Says which settings of a file diffusers' pipeline would set to other values.
void report_outdated(const Settings& file) {
  using Any = std::numeric_limits<int>;  // the value is not used
  std::string changes;
  const int offset = file.integer(kStepsOffset, 0, Any::min(), Any::max());
  if (offset != 1) changes = "steps_offset 1 instead of " + std::to_string(offset);
  // Of the classes that are implemented, only this one has the setting, and clips by default.
  const bool clips = file.has("_class_name") && file.class_name() == "DDIMScheduler";
  if (file.flag(kClipSample, clips))
    changes += std::string(changes.empty() ? "" : " and ") + "clip_sample false instead of true";
  if (!changes.empty())
    spdlog::warn("{}: using {}, as diffusers' StableDiffusionPipeline does", shown(file.where()), changes);
}

constexpr int64_t kClipVocabulary = 49408;

ClipTokenizer clip_tokenizer() {
  const fs::path file = asset_folder("clip", "merges.txt") / "merges.txt";
  return ClipTokenizer::from_merges(read_file(file), file.string());
}
}  // namespace

std::shared_ptr<const StableDiffusionModel> StableDiffusionModel::open(const std::string& spec, uint64_t random_seed) {
  if (!spec.starts_with(kRandomModel))
    return of(StableDiffusionCheckpoint::open(spec.empty() ? default_model_folder() : find_model(spec)));
  auto m = std::make_shared<StableDiffusionModel>();
  m->random_seed_ = random_seed;
  m->name_ = spec;
  m->config_ = model_preset(spec.substr(kRandomModel.size())).config;
  m->set_scheduler_config(sd15_scheduler_config());
  return m;
}

std::shared_ptr<const StableDiffusionModel> StableDiffusionModel::of(StableDiffusionCheckpoint checkpoint) {
  auto m = std::make_shared<StableDiffusionModel>();
  const fs::path path = checkpoint.path();
  m->name_ = model_name(path);
  m->checkpoint_ = std::move(checkpoint);
  m->checkpoint_->require_stable_diffusion_1();
  m->config_ = stable_diffusion_config(*m->checkpoint_);
  m->scheduler_file_ = (path / "scheduler/scheduler_config.json").string();
  const nlohmann::json& scheduler = m->checkpoint_->scheduler_config();
  m->set_scheduler_config(scheduler.is_null() ? sd15_scheduler_config() : scheduler);
  m->defaults_ = defaults_of(*m->checkpoint_, m->config_.vae, m->scheduler_config());
  m->known_words_ = read_known_words(m->checkpoint_->model_index());
  if (m->checkpoint_->tokenizer())
    m->tokenizer_ = ClipTokenizer::from_folder(*m->checkpoint_->tokenizer());
  else if (m->config_.text.vocabulary == kClipVocabulary)
    m->tokenizer_ = clip_tokenizer();
  return m;
}

void StableDiffusionModel::set_scheduler_config(const nlohmann::json& file) {
  const Settings given(file, scheduler_file_);
  TENON_CHECK(Model, !is_flow_matching(given), given.where("_class_name"))
      << "is a flow-matching scheduler, but Stable Diffusion 1.x models are not trained for flow matching";
  report_outdated(given);
  scheduler_config_ = other_samplers_config_ = file;
  scheduler_config_[kStepsOffset] = 1;
  scheduler_config_[kClipSample] = false;
  // A key that the file lacks stays so: diffusers' from_config then takes the default of the sampler's class.
  for (const char* key : {kStepsOffset, kClipSample})
    if (file.contains(key)) other_samplers_config_[key] = scheduler_config_[key];
}

Settings StableDiffusionModel::scheduler_config(std::string_view sampler) const {
  const Settings own(scheduler_config_, scheduler_file_);
  return is_configs_sampler(sampler, own) ? own : Settings(other_samplers_config_, scheduler_file_);
}

const ClipTokenizer& StableDiffusionModel::tokenizer() const {
  if (tokenizer_) {
    const ClipTextConfig& text = config_.text;
    TENON_CHECK(Model, tokenizer_->vocab_size() <= text.vocabulary && tokenizer_->window_length() == text.positions,
                name_)
        << "the tokenizer (" << tokenizer_->vocab_size() << " tokens, windows of " << tokenizer_->window_length()
        << ") does not match the text encoder (" << text.vocabulary << " tokens, " << text.positions << " positions)";
    return *tokenizer_;
  }
  TENON_CHECK(Model, checkpoint_, name_) << "random weights have no tokenizer, so they cannot generate images; "
                                         << kUsesOfRandomWeights;
  throw Error(ErrorKind::Model, name_,
              "the model has no tokenizer, and its vocabulary of " + std::to_string(config_.text.vocabulary) +
                  " tokens is not CLIP's",
              "put a folder tokenizer/ with vocab.json and merges.txt beside its components");
}

void StableDiffusionModel::complete_sampling(ImageRequest& r) const {
  const std::string& sampler = r.sampler.empty() ? defaults_.sampler : r.sampler;
  tenon::complete_sampling(r, defaults_, scheduler_config(sampler), name_);
}

void StableDiffusionModel::require_all() const {
  ImageRequest defaults;
  complete_sampling(defaults);
  static_cast<void>(tokenizer());
  require_components();
}

void StableDiffusionModel::require_components() const {
  for (const auto& [component, shapes] : expected_weights(config_)) static_cast<void>(weights(component));
}

std::unique_ptr<WeightSource> StableDiffusionModel::weights(const std::string& component) const {
  const WeightShapes expected = expected_weights(config_).at(component);
  if (!checkpoint_) return random_weights(expected, random_seed_);
  const Component& c = checkpoint_->component(component);
  c.require_readable();
  require_weights(check_weights(expected, shapes_of(c)), name_ + " " + component);
  require_floats(expected, c.tensors, name_ + " " + component);
  return component_weights(c);
}

}  // namespace tenon
