// Vision transformers as parts: one, the encoder.
#include "tenon/pipelines/image_encoder.h"

#include "tenon/pipelines/family.h"

namespace tenon {
namespace {

constexpr int64_t kUsualSide = 224;  // what the published timings are of

class EncoderParts : public ModelParts {
 public:
  explicit EncoderParts(std::shared_ptr<const ImageEncoder> encoder) : encoder_(std::move(encoder)) {}

  std::string name() const override { return encoder_->name(); }
  std::vector<std::string> parts() const override { return {"encoder"}; }
  std::string describe(const std::string&, const PartRequest& r) const override {
    return std::to_string(width(r)) + "x" + std::to_string(height(r)) + " batch " + std::to_string(r.batch);
  }
  Plan plan(const std::string&, const PartRequest& r, const NetworkOptions& options) const override {
    return plan_image_encoder(encoder_->config(), r.batch, height(r), width(r), options);
  }
  WeightShapes shapes(const std::string&) const override { return encoder_->shapes(); }
  std::unique_ptr<WeightSource> weights(const std::string&) const override { return encoder_->weights(); }
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

std::vector<std::pair<std::string, std::string>> image_encoder_presets() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const VitPreset& p : vit_presets()) out.emplace_back(p.name, p.summary);
  return out;
}

const RegisterFamily kImageEncoders({"image encoder", image_encoder_presets, ImageEncoder::reads,
                                     [](const std::string& spec) -> std::shared_ptr<const ModelParts> {
                                       return std::make_shared<EncoderParts>(ImageEncoder::open(spec));
                                     }});

}  // namespace
}  // namespace tenon
