// Stable Diffusion 1.x: draws. Parts: text encoder, UNet, VAE decoder and encoder.
#include "tenon/pipelines/family.h"

#include "tenon/core/error.h"
#include "tenon/io/files.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"
#include "tenon/pipelines/families/stable_diffusion/training.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/pipelines/model_report.h"

namespace tenon {
namespace {

const char* component_of(const std::string& part) {
  return part == "text" ? "text_encoder" : part == "unet" ? "unet" : "vae";
}

class DiffusionParts : public ModelParts {
 public:
  explicit DiffusionParts(std::shared_ptr<const StableDiffusionModel> model) : model_(std::move(model)) {}

  std::string name() const override { return model_->name(); }
  std::vector<std::string> parts() const override { return {"text", "unet", "vae-decode", "vae-encode"}; }
  std::string default_part() const override { return "unet"; }

  std::string describe(const std::string& part, const PartRequest& request) const override {
    const GenerationShape s = shape(request);
    const std::string size = part == "text" ? "" : std::to_string(s.width) + "x" + std::to_string(s.height) + " ";
    return size + "batch " + std::to_string(networks_batch(part, s));
  }
  Plan plan(const std::string& part, const PartRequest& request, const NetworkOptions& options) const override {
    check_request(request, {.size = true, .steps = true}, name());
    const GenerationShape s = shape(request);
    if (part == "text") return plan_text(*model_, networks_batch(part, s), options);
    if (part == "unet") return plan_unet(*model_, s, options);
    return part == "vae-decode" ? plan_vae_decode(*model_, s, options) : plan_vae_encode(*model_, s, options);
  }
  std::string component(const std::string& part) const override { return component_of(part); }
  WeightShapes shapes(const std::string& part) const override {
    return expected_weights(model_->config()).at(component_of(part));
  }
  std::unique_ptr<WeightSource> weights(const std::string& part) const override {
    return model_->weights(component_of(part));
  }
  std::vector<NamedNetwork> networks() const override { return networks_of(*model_); }
  std::vector<std::string> peer_arguments(const std::string& part, const PartRequest& request) const override {
    const auto full = expected_weights(model_preset("sd15").config), own = expected_weights(model_->config());
    TENON_CHECK(Usage, full == own, "--peer torch")
        << "supports only latent diffusion models of Stable Diffusion 1.5's size; use -m random:sd15";
    const GenerationShape s = shape(request);
    return {"--part",   part,
            "--width",  std::to_string(s.width),
            "--height", std::to_string(s.height),
            "--batch",  std::to_string(networks_batch(part, s))};
  }

 private:
  static int64_t networks_batch(const std::string& part, const GenerationShape& s) {
    return s.batch * (s.guided && (part == "unet" || part == "text") ? 2 : 1);
  }
  GenerationShape shape(const PartRequest& r) const {
    const GenerationDefaults& d = model_->defaults();
    GenerationShape s;
    s.batch = r.batch;
    s.width = r.width ? r.width : d.width;
    s.height = r.height ? r.height : d.height;
    s.guided = (r.cfg_scale < 0 ? d.cfg_scale : r.cfg_scale) > 1;
    s.tokens = model_->config().text.positions;
    s.timesteps = r.steps ? r.steps : d.steps;
    check_size(*model_, s.height, s.width);
    return s;
  }

  std::shared_ptr<const StableDiffusionModel> model_;
};

Presets stable_diffusion_presets() {
  Presets out;
  for (const ModelPreset* p : model_presets()) out.emplace_back(p->name, p->summary);
  return out;
}

// A UNet in its own folder, or in a single-file checkpoint.
bool reads(const std::filesystem::path& path) {
  if (folder_exists(path)) return folder_exists(path / "unet");
  try {
    return path.extension() == ".safetensors" && SafetensorsFile::mentions(path, "model.diffusion_model.input_blocks.");
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Cancelled) throw;
    return false;  // opening it reports the error
  }
}

// Checks what is there against what the networks need, and then opens it as drawing does.
void judge(ModelReport& out, const StableDiffusionCheckpoint& checkpoint) {
  checkpoint.require_stable_diffusion_1();
  const StableDiffusionConfig config = stable_diffusion_config(checkpoint);
  out.differences = check_checkpoint(checkpoint, config);
  for (const auto& [name, shapes] : expected_weights(config))
    if (!checkpoint.has(name)) out.missing_components.push_back(name);
  const auto model = StableDiffusionModel::of(checkpoint);
  // A file of one network is complete in itself; a whole model needs all that drawing takes.
  if (checkpoint.kind() == CheckpointKind::ComponentFile)
    for (const auto& [name, differences] : out.differences) static_cast<void>(model->weights(name));
  else
    model->require_all();
  out.usable = true;
}

ModelReport inspect(const std::filesystem::path& path) {
  const StableDiffusionCheckpoint checkpoint = StableDiffusionCheckpoint::open(path);
  static constexpr const char* kKinds[] = {"diffusers folder", "single file", "component file"};
  ModelReport out{.kind = kKinds[static_cast<int>(checkpoint.kind())],
                  .architecture = std::string(name_of(checkpoint.architecture())),
                  .tokenizer = checkpoint.tokenizer() ? checkpoint.tokenizer()->string() : "",
                  .components = checkpoint.components(),
                  .unexpected = checkpoint.unexpected(),
                  .ignored = checkpoint.ignored()};
  if (!checkpoint.tokenizer())
    out.notes.emplace_back(
        "no tokenizer of its own: CLIP's is used if its vocabulary is CLIP's, else a folder tokenizer/ beside the "
        "components is needed");
  try {
    judge(out, checkpoint);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Model) throw;
    out.problem = e.what();
  }
  return out;
}

const RegisterFamily kStableDiffusion{
    {.name = "stable diffusion",
     .presets = stable_diffusion_presets,
     .reads = reads,
     .inspect = inspect,
     .abilities = {ability<ImageGenerator>([](const std::string& spec, const PipelineOptions& options) {
                     auto model = StableDiffusionModel::open(spec);  // says what is wrong with a file of no family
                     TENON_CHECK(Usage, !options.parts.any(), "parts")
                         << "Stable Diffusion 1.x models are read whole; --diffusion-model, --llm and --vae are for "
                            "Z-Image";
                     return std::make_unique<TextToImage>(std::move(model), options);
                   }),
                   ability<TrainableDenoiser>([](const std::string& spec, const TrainableDenoiser::Options& options) {
                     return stable_diffusion_training(StableDiffusionModel::open(spec), options);
                   }),
                   ability<ModelParts>([](const std::string& spec, const ModelParts::Options&) {
                     return std::make_unique<DiffusionParts>(StableDiffusionModel::open(spec));
                   })},
     .last_resort = true}};

}  // namespace
}  // namespace tenon
