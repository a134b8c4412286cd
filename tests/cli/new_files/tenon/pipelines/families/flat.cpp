// A family of models in one file that nothing else refers to: every picture has one colour, chosen by the seed. Once
// loaded into the program it works like any other family.
#include <chrono>
#include <thread>

#include "tenon/backend/backend.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/model_files.h"

namespace tenon {
namespace {

constexpr int64_t kSide = 16, kCell = 8;  // in pixels: default side of a picture, side of one latent
constexpr int kSteps = 2;
constexpr auto kStepTime = std::chrono::milliseconds(5);

class FlatPictures : public ImageGenerator {
 public:
  FlatPictures(std::string name, const PipelineOptions& options)
      : name_(std::move(name)), backend_(make_backend(options.device, {options.threads})) {}

  const std::string& name() const override { return name_; }
  std::vector<std::filesystem::path> files() const override { return {}; }
  ImageRequest complete(ImageRequest r) const override {
    if (r.width == 0) r.width = kSide;
    if (r.height == 0) r.height = kSide;
    if (r.steps == 0) r.steps = kSteps;
    if (r.cfg_scale < 0) r.cfg_scale = 1;
    if (r.sampler.empty()) r.sampler = "euler";
    TENON_CHECK(Usage, r.width % kCell == 0 && r.height % kCell == 0, "size") << "expected multiples of " << kCell;
    return r;
  }
  Shape latent_shape(const ImageRequest& r) const override { return {r.batch, 1, r.height / kCell, r.width / kCell}; }
  void check_fits(const ImageRequest&) const override {}
  ImageResult generate(const ImageRequest& request, const OnStep& on_step) override {
    ImageResult out;
    const ImageRequest r = out.request = complete(request);
    out.latents.assign(static_cast<size_t>(latent_shape(r).numel()), 0);
    for (int i = 0; i < r.steps; ++i) {
      check_stop("flat");
      std::this_thread::sleep_for(kStepTime);
      for (float& v : out.latents) v += 1;
      if (on_step) on_step({i + 1, r.steps, 0, 0, out.latents});
    }
    for (int64_t b = 0; b < r.batch; ++b) {
      out.seeds.push_back(r.seed + static_cast<uint64_t>(b));
      const auto shade = static_cast<uint8_t>(out.seeds.back() + r.prompt.size());
      out.images.push_back(
          {r.width, r.height, 3, std::vector<uint8_t>(static_cast<size_t>(r.width * r.height * 3), shade)});
    }
    return out;
  }
  Backend& backend() override { return *backend_; }

 private:
  std::string name_;
  std::unique_ptr<Backend> backend_;
};

const RegisterFamily kFlat{
    {.name = "flat colour",
     .presets =
         [] {
           return Presets{{"flat", "pictures of one colour"}};
         },
     .reads = [](const std::filesystem::path& path) { return path.extension() == ".flat"; },
     .abilities = {ability<ImageGenerator>([](const std::string& spec, const PipelineOptions& options) {
       return std::make_unique<FlatPictures>(model_name(spec), options);
     })}}};

}  // namespace
}  // namespace tenon
