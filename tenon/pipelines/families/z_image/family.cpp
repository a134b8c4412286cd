// Z-Image and Z-Image-Turbo: draw. Parts: text encoder, transformer, VAE decoder and encoder.
#include "tenon/pipelines/family.h"

#include <algorithm>
#include <iterator>

#include "tenon/core/error.h"
#include "tenon/io/files.h"
#include "tenon/pipelines/families/z_image/generator.h"
#include "tenon/pipelines/families/z_image/training.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/pipelines/model_report.h"

namespace tenon {
namespace {

constexpr int64_t kPartTextTokens = 128;  // as in the published timings

class ZImageParts : public ModelParts {
 public:
  explicit ZImageParts(std::shared_ptr<const ZImageModel> model) : model_(std::move(model)) {}

  std::string name() const override { return model_->name(); }
  std::vector<std::string> parts() const override {
    std::vector<std::string> out;
    for (const char* part : {"text", "transformer", "vae-decode", "vae-encode"})
      if (model_->has(component(part))) out.emplace_back(part);
    return out;
  }
  std::string default_part() const override { return "transformer"; }

  std::string describe(const std::string& part, const PartRequest& request) const override {
    const Sizes s = sizes(request);
    const std::string size = std::to_string(s.width) + "x" + std::to_string(s.height);
    const std::string tokens = std::to_string(kPartTextTokens) + " tokens";
    const std::string what = part == "text" ? tokens : part == "transformer" ? size + ", " + tokens : size;
    return what + ", batch " + std::to_string(part == "text" || part == "transformer" ? s.sequences() : s.batch);
  }
  Plan plan(const std::string& part, const PartRequest& request, const NetworkOptions& options) const override {
    check_request(request, {.size = true, .steps = true}, name());
    const Sizes s = sizes(request);
    if (part == "text") return plan_text(*model_, s.sequences(), kPartTextTokens, options);
    if (part == "vae-decode") return plan_vae_decode(*model_, s.batch, s.height, s.width, options);
    if (part == "vae-encode") return plan_vae_encode(*model_, s.batch, s.height, s.width, options);
    const int64_t factor = model_->vae().downsampling();
    return plan_transformer(*model_,
                            {.batch = s.batch,
                             .guided = s.guided,
                             .height = s.height / factor,
                             .width = s.width / factor,
                             .tokens = kPartTextTokens,
                             .timesteps = s.steps},
                            options);
  }
  std::string component(const std::string& part) const override {
    return part == "text" ? "text_encoder" : part == "transformer" ? "transformer" : "vae";
  }
  WeightShapes shapes(const std::string& part) const override { return model_->shapes(component(part)); }
  std::unique_ptr<WeightSource> weights(const std::string& part) const override {
    return model_->weights(component(part));
  }
  std::vector<NamedNetwork> networks() const override { return networks_of(*model_); }
  std::vector<std::string> peer_arguments(const std::string&, const PartRequest&) const override {
    throw Error(ErrorKind::Usage, "--peer torch", "does not support models of this family");
  }

 private:
  struct Sizes {
    int64_t batch, width, height, steps;
    bool guided;
    int64_t sequences() const { return guided ? 2 * batch : batch; }
  };
  Sizes sizes(const PartRequest& r) const {
    const GenerationDefaults& d = model_->defaults();
    const Sizes s{r.batch, r.width ? r.width : d.width, r.height ? r.height : d.height, r.steps ? r.steps : d.steps,
                  (r.cfg_scale < 0 ? d.cfg_scale : r.cfg_scale) > 1};
    check_size(*model_, s.height, s.width);
    return s;
  }

  std::shared_ptr<const ZImageModel> model_;
};

// Prompts are read off the last layer but one: every checkpoint has more, and nothing is wrong with that.
void ignore_unread_layer(const ZImageModel& model, WeightReport& report, Component& encoder) {
  const std::string last = "model.layers." + std::to_string(model.text().layers - 1) + ".";
  const auto unread = [&](const std::string& n) { return n.starts_with(last) || n == "model.norm.weight"; };
  std::ranges::copy_if(report.unexpected, std::back_inserter(encoder.ignored), unread);
  std::erase_if(report.unexpected, unread);
}

ModelReport inspect_z_image(const std::filesystem::path& path) {
  const auto model = ZImageModel::open(path.string());
  const ZImageConfig& c = model->transformer();
  ModelReport out{
      .kind = model->files().kind,
      .architecture = "Z-Image, width " + std::to_string(c.width) + ", " + std::to_string(c.layers) + " blocks",
      .held = model};
  if (model->has("text_encoder"))
    out.architecture += "; text encoder " + model->text().family + ", width " + std::to_string(model->text().width) +
                        ", " + std::to_string(model->text().layers) + " layers";
  out.tokenizer = model->files().tokenizer_where;
  for (const char* part : {"text_encoder", "transformer", "vae"})
    if (!model->has(part)) out.missing_components.emplace_back(part);
  for (auto [name, component] : model->components()) {
    WeightReport report = check_weights(model->shapes(name), component.shapes());
    if (name == "text_encoder") ignore_unread_layer(*model, report, component);
    out.differences.emplace(name, report);
    out.components.emplace(name, component);
  }
  try {
    model->require_usable();
    out.usable = true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Model) throw;
    out.problem = e.what();
  }
  return out;
}

const RegisterFamily kZImage{
    {.name = "z-image",
     .presets =
         [] {
           return Presets{{"z-image", "Z-Image-Turbo: 6155 M parameters, text encoder Qwen3-4B"}};
         },
     .reads = ZImageCheckpoint::reads,
     .gguf = {"lumina2"},
     .inspect = inspect_z_image,
     .abilities = {ability<ImageGenerator>([](const std::string& spec, const PipelineOptions& options) {
                     return std::make_unique<ZImageGenerator>(ZImageModel::open(spec, 0, options.parts), options);
                   }),
                   ability<TrainableDenoiser>([](const std::string& spec, const TrainableDenoiser::Options& options) {
                     return z_image_training(ZImageModel::open(spec, 0, options.parts), options);
                   }),
                   ability<ModelParts>([](const std::string& spec, const ModelParts::Options&) {
                     return std::make_unique<ZImageParts>(ZImageModel::open(spec));
                   })}}};

}  // namespace
}  // namespace tenon
