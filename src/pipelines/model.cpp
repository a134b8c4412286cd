#include "tenon/pipelines/model.h"

#include <dlfcn.h>

#include "tenon/core/error.h"
#include "tenon/core/options.h"
#include "tenon/core/similar.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/pipelines/schedulers/scheduler.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {

class CheckpointWeights : public WeightSource {
 public:
  explicit CheckpointWeights(const Component& component) : component_(component) {}
  HostView find(const std::string& name) const override {
    const TensorView& t = component_.at(name);
    return {t.dtype, t.shape, t.data};
  }
  void done(const std::string& name) const override { release(component_.at(name)); }

 private:
  const Component& component_;
};

GenerationDefaults defaults_of(const Checkpoint& c, const VaeConfig& vae) {
  GenerationDefaults d;
  if (c.has("unet")) {
    const nlohmann::json& config = c.component("unet").config;
    if (config.is_object() && config.contains("sample_size") && config["sample_size"].is_number_integer())
      d.width = d.height = config["sample_size"].get<int64_t>() * vae.downsampling();
  }
  const nlohmann::json& index = c.model_index();
  if (!index.is_object() || !index.contains("_tenon_defaults")) return d;
  const nlohmann::json& own = index["_tenon_defaults"];
  try {
    d.width = own.value("width", d.width);
    d.height = own.value("height", d.height);
    d.steps = own.value("steps", d.steps);
    d.cfg_scale = own.value("guidance_scale", d.cfg_scale);
    d.sampler = own.value("sampler", d.sampler);
    if (!d.sampler.empty()) make_scheduler(d.sampler, sd15_scheduler_config());
  } catch (const std::exception& e) {
    throw Error(ErrorKind::Model, "model_index.json", std::string("_tenon_defaults: ") + e.what());
  }
  const int64_t factor = vae.downsampling();
  const auto check = [](bool good, const char* key, auto found) {
    TENON_CHECK(Model, good, "model_index.json") << "_tenon_defaults: " << key << " is " << found;
  };
  check(d.width > 0 && d.width % factor == 0, "width", d.width);
  check(d.height > 0 && d.height % factor == 0, "height", d.height);
  check(d.steps > 0, "steps", d.steps);
  check(d.cfg_scale >= 0, "guidance_scale", d.cfg_scale);
  return d;
}

}  // namespace

namespace {
// What could have been meant by a path that is not there: folders and weights beside it and in TENON_MODEL_DIR. Looks
// at a bounded number of entries.
std::vector<std::string> names_beside(const fs::path& given, const std::string& base) {
  constexpr int kMostEntries = 1000;
  std::vector<std::string> out;
  std::error_code ignored;
  for (const fs::path& folder : {given.has_parent_path() ? given.parent_path() : fs::path("."), fs::path(base)}) {
    fs::directory_iterator entry(folder, ignored);
    for (int i = 0; i < kMostEntries && !ignored && entry != fs::directory_iterator(); ++i, entry.increment(ignored))
      if (entry->path().extension() == ".safetensors" || entry->is_directory(ignored))
        out.push_back(entry->path().filename().string());
  }
  return out;
}
}  // namespace

fs::path find_model(const std::string& spec) {
  fs::path given(spec);
  std::error_code ignored;  // a name that cannot be looked up names nothing
  if (fs::exists(given, ignored)) return given;
  const std::string base = option(Option::ModelDir);
  if (!base.empty() && given.is_relative() && fs::exists(fs::path(base) / given, ignored))
    return fs::path(base) / given;
  std::string tried = given.string();
  if (!base.empty() && given.is_relative()) tried += ", " + (fs::path(base) / given).string();
  throw Error(ErrorKind::Model, "model", "no model at " + tried,
              did_you_mean(given.filename().string(), names_beside(given, base),
                           "a folder, a .safetensors file or random:NAME is expected"));
}

fs::path asset_folder(const std::string& name, const std::string& file) {
  std::vector<fs::path> places;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&asset_folder), &info) && info.dli_fname) {
    const fs::path library = fs::weakly_canonical(info.dli_fname);
    places.push_back(library.parent_path() / "../share/tenon" / name);
    places.push_back(library.parent_path() / "../../share/tenon" / name);
  }
  places.push_back(fs::path(TENON_ASSETS) / name);
  std::string tried;
  for (const fs::path& p : places) {
    if (fs::exists(p / file)) return fs::weakly_canonical(p);
    tried += (tried.empty() ? "" : ", ") + p.lexically_normal().string();
  }
  throw Error(ErrorKind::Model, name, "not found; looked in " + tried);
}

fs::path default_model_folder() { return asset_folder("default-model", "model_index.json"); }

namespace {
constexpr int64_t kClipVocabulary = 49408;

ClipTokenizer clip_tokenizer() {
  const fs::path file = asset_folder("clip", "merges.txt") / "merges.txt";
  return ClipTokenizer::from_merges(read_file(file), file.string());
}
}  // namespace

std::shared_ptr<const Model> Model::open(const std::string& spec, uint64_t random_seed) {
  auto m = std::make_shared<Model>();
  m->random_seed_ = random_seed;
  if (spec.starts_with(kRandomModel)) {
    const ModelPreset& preset = model_preset(spec.substr(kRandomModel.size()));
    m->name_ = spec;
    m->config_ = preset.config;
    m->scheduler_config_ = sd15_scheduler_config();
    return m;
  }
  const fs::path path = spec.empty() ? default_model_folder() : find_model(spec);
  m->name_ = path.filename().empty() ? path.parent_path().filename().string() : path.filename().string();
  m->checkpoint_ = Checkpoint::open(path);
  m->checkpoint_->require_stable_diffusion_1();
  m->config_ = stable_diffusion_config(*m->checkpoint_);
  m->scheduler_config_ = m->checkpoint_->scheduler_config();
  if (m->scheduler_config_.is_null()) m->scheduler_config_ = sd15_scheduler_config();
  m->defaults_ = defaults_of(*m->checkpoint_, m->config_.vae);
  m->known_words_ = read_known_words(m->checkpoint_->model_index());
  if (m->checkpoint_->tokenizer())
    m->tokenizer_ = ClipTokenizer::from_folder(*m->checkpoint_->tokenizer());
  else if (m->config_.text.vocabulary == kClipVocabulary)
    m->tokenizer_ = clip_tokenizer();
  return m;
}

const ClipTokenizer& Model::tokenizer() const {
  if (tokenizer_) return *tokenizer_;
  throw Error(ErrorKind::Model, name_,
              "the model has no tokenizer, and its vocabulary of " + std::to_string(config_.text.vocabulary) +
                  " tokens is not CLIP's",
              "a folder tokenizer/ with vocab.json and merges.txt is expected beside its components");
}

std::unique_ptr<WeightSource> Model::weights(const std::string& component) const {
  const WeightShapes expected = expected_weights(config_).at(component);
  if (!checkpoint_) return random_weights(expected, random_seed_);
  const Component& c = checkpoint_->component(component);
  require_weights(check_weights(expected, shapes_of(c)), name_ + " " + component);
  return std::make_unique<CheckpointWeights>(c);
}

}  // namespace tenon
