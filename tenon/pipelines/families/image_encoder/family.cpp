// Vision transformers: compute features of pictures; their only part is the encoder.
#include "tenon/pipelines/family.h"

#include "tenon/pipelines/families/image_encoder/embedding.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/pipelines/model_report.h"

namespace tenon {
namespace {

constexpr int64_t kUsualSide = 224;  // the size of the published timings

class EncoderParts : public ModelParts {
 public:
  explicit EncoderParts(std::shared_ptr<const ImageEncoder> encoder) : encoder_(std::move(encoder)) {}

  std::string name() const override { return encoder_->name(); }
  std::vector<std::string> parts() const override { return {"encoder"}; }
  std::string describe(const std::string&, const PartRequest& r) const override {
    return std::to_string(width(r)) + "x" + std::to_string(height(r)) + " batch " + std::to_string(r.batch);
  }
  Plan plan(const std::string&, const PartRequest& r, const NetworkOptions& options) const override {
    check_request(r, {.size = true}, name());
    return plan_image_encoder(encoder_->config(), r.batch, height(r), width(r), options);
  }
  WeightShapes shapes(const std::string&) const override { return encoder_->shapes(); }
  std::unique_ptr<WeightSource> weights(const std::string&) const override { return encoder_->weights(); }
  std::vector<NamedNetwork> networks() const override { return networks_of(*encoder_); }
  std::vector<std::string> peer_arguments(const std::string&, const PartRequest& r) const override {
    const VitConfig& c = encoder_->config();
    const auto number = [](int64_t n) { return std::to_string(n); };
    return {"--part",
            "vit",
            "--width",
            number(width(r)),
            "--height",
            number(height(r)),
            "--batch",
            number(r.batch),
            "--vit",
            number(c.width) + "," + number(c.depth) + "," + number(c.heads) + "," + number(c.hidden) + "," +
                number(c.gated) + "," + number(c.registers) + "," + number(c.native_side())};
  }

 private:
  int64_t usual() const {
    return std::max(kUsualSide / encoder_->config().patch, int64_t{1}) * encoder_->config().patch;
  }
  int64_t width(const PartRequest& r) const { return r.width ? r.width : usual(); }
  int64_t height(const PartRequest& r) const { return r.height ? r.height : usual(); }

  std::shared_ptr<const ImageEncoder> encoder_;
};

Presets image_encoder_presets() {
  Presets out;
  for (const VitPreset& p : vit_presets()) out.emplace_back(p.name, p.summary);
  return out;
}

ModelReport inspect_encoder(const std::filesystem::path& path) {
  const auto encoder = ImageEncoder::open(path.string());
  const VitConfig& c = encoder->config();
  static constexpr const char* kLayouts[] = {"timm", "original", "transformers"};
  Component all;
  all.name = "encoder";
  all.files = encoder->checkpoint()->files;
  for (const auto& [stored, view] : encoder->checkpoint()->tensors) {
    const std::string timm = vit_name(stored);
    if (timm.empty())
      all.ignored.push_back(stored);
    else
      all.tensors.emplace(timm, view);
  }
  ModelReport out{.kind = std::string("image encoder, ") + kLayouts[static_cast<int>(c.source)] + " layout",
                  .architecture = "vision transformer, width " + std::to_string(c.width) + ", " +
                                  std::to_string(c.depth) + " blocks, patch " + std::to_string(c.patch) +
                                  (c.gated ? ", SwiGLU" : ", GELU") +
                                  (c.registers ? ", " + std::to_string(c.registers) + " registers" : "")};
  WeightShapes found;
  for (const auto& [name, view] : all.tensors) found.emplace(name, view.shape);
  out.differences.emplace(all.name, check_weights(encoder->shapes(), found));
  out.components.emplace(all.name, std::move(all));
  out.usable = true;  // opening it would have refused it otherwise
  return out;
}

const RegisterFamily kImageEncoders{
    {.name = "image encoder",
     .presets = image_encoder_presets,
     .reads = ImageEncoder::reads,
     .inspect = inspect_encoder,
     .abilities = {ability<ImageEmbedder>([](const std::string& spec, const EmbeddingOptions& options) {
                     return std::make_unique<ImageEmbedding>(ImageEncoder::open(spec), options);
                   }),
                   ability<ModelParts>([](const std::string& spec, const ModelParts::Options&) {
                     return std::make_unique<EncoderParts>(ImageEncoder::open(spec));
                   })}}};

}  // namespace
}  // namespace tenon
