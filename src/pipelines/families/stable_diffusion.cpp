// Stable Diffusion 1.x as parts: text encoder, UNet, both halves of the VAE.
#include "tenon/core/error.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/family.h"

namespace tenon {
namespace {

const char* component_of(const std::string& part) {
  return part == "text" ? "text_encoder" : part == "unet" ? "unet" : "vae";
}

class DiffusionParts : public ModelParts {
 public:
  explicit DiffusionParts(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

  std::string name() const override { return model_->name(); }
  std::vector<std::string> parts() const override { return {"text", "unet", "vae-decode", "vae-encode"}; }
  std::string default_part() const override { return "unet"; }

  std::string describe(const std::string& part, const PartRequest& request) const override {
    const GenerationShape s = shape(request);
    const std::string size = part == "text" ? "" : std::to_string(s.width) + "x" + std::to_string(s.height) + " ";
    return size + "batch " + std::to_string(networks_batch(part, s));
  }
  Plan plan(const std::string& part, const PartRequest& request, const NetworkOptions& options) const override {
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
  std::vector<std::string> peer_arguments(const std::string& part, const PartRequest& request) const override {
    const auto full = expected_weights(model_preset("sd15").config), own = expected_weights(model_->config());
    TENON_CHECK(Usage, full == own, "--peer torch")
        << "measures latent diffusion models of Stable Diffusion 1.5's size only; use -m random:sd15";
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

  std::shared_ptr<const Model> model_;
};

std::vector<std::pair<std::string, std::string>> stable_diffusion_presets() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const ModelPreset* p : model_presets()) out.emplace_back(p->name, p->summary);
  return out;
}

const RegisterFamily kStableDiffusion({"stable diffusion",
                                       stable_diffusion_presets,
                                       {},
                                       [](const std::string& spec) -> std::shared_ptr<const ModelParts> {
                                         return std::make_shared<DiffusionParts>(Model::open(spec));
                                       }});

}  // namespace
}  // namespace tenon
