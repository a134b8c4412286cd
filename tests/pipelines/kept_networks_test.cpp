// Networks that a pipeline keeps ready for several sizes, with one set of weights per component.
#include <gtest/gtest.h>

#include <map>

#include "tenon/core/error.h"
#include "tenon/pipelines/families/stable_diffusion/networks.h"
#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {
namespace {

std::vector<Image> draw(TextToImage& pipeline, int64_t width, int64_t height) {
  ImageRequest r;
  r.prompt = "a red circle";
  r.width = width;
  r.height = height;
  r.steps = 2;
  r.seed = 5;
  return pipeline.generate(r).images;
}

TEST(KeptNetworks, SizesShareWeightsWithinABound) {
  PipelineOptions options;
  options.type = DType::F32;
  TextToImage alone(StableDiffusionModel::open(""), options);
  options.keep_networks = true;
  options.keep_sizes = 2;
  TextToImage pipeline(StableDiffusionModel::open(""), options);
  struct Size {
    int64_t width, height;
    int ready;   // networks ready afterwards: one text encoder, at most two of each other network
    bool fresh;  // the size was not kept
  };
  const int64_t first = [&] {
    draw(pipeline, 64, 64);
    return pipeline.kept().counters().weights.made_bytes;
  }();
  EXPECT_EQ(pipeline.kept().counters().networks, 3);
  int64_t made = first;
  std::map<std::pair<int64_t, int64_t>, std::vector<Image>> wanted;  // drawn once per size, planning each time
  for (const Size& s : {Size{64, 128, 5, true},
                        {64, 64, 5, false},
                        {128, 64, 5, true},
                        {64, 64, 5, false},
                        {64, 128, 5, true},
                        {128, 64, 5, true}}) {
    SCOPED_TRACE(std::to_string(s.width) + "x" + std::to_string(s.height));
    std::vector<Image>& want = wanted[{s.width, s.height}];
    if (want.empty()) want = draw(alone, s.width, s.height);
    EXPECT_EQ(draw(pipeline, s.width, s.height), want);
    const KeptNetworks::Counters kept = pipeline.kept().counters();
    EXPECT_EQ(kept.networks, s.ready);
    EXPECT_LE(kept.weights.made_bytes - made, s.fresh ? first / 2 : 0);  // some filters have another layout there
    made = kept.weights.made_bytes;
  }
  EXPECT_LE(alone.kept().counters().networks, 1);
}

// The decoder may need more than the network that runs every step.
TEST(KeptNetworks, PeakIsOfThePicturesLargestNetwork) {
  const auto model = StableDiffusionModel::open("");
  PipelineOptions options;
  options.type = DType::F32;
  options.keep_networks = true;
  TextToImage pipeline(model, options);
  const auto peak = [&](int64_t side, bool decode) {
    ImageRequest r;
    r.prompt = "a red circle";
    r.width = r.height = side;
    r.steps = 1;
    r.cfg_scale = 1;  // or the UNet, of two samples, may be the largest
    r.decode = decode;
    return pipeline.generate(r).peak_bytes;
  };
  const GenerationShape shape{.height = 384, .width = 384};
  const int64_t decoder = plan_memory(plan_vae_decode(*model, shape, {}), make_backend("cpu")).total();
  const int64_t large = peak(384, true);
  EXPECT_GE(large, decoder);
  EXPECT_LT(peak(384, false), decoder);
  EXPECT_LT(peak(64, true), large / 2) << "of this picture, not of an earlier one";
  EXPECT_EQ(peak(384, true), large);
}

TEST(KeptNetworks, WeightsThatCannotBeOpenedFailEachTime) {
  const auto model = StableDiffusionModel::open("");
  bool there = false;
  PipelineOptions options;
  options.keep_networks = true;
  KeptNetworks kept(
      make_backend("cpu"),
      [&](const std::string& component) {
        TENON_CHECK(Model, there, component) << "cannot be opened";
        return model->weights(component);
      },
      options);
  const auto get = [&]() -> std::string {
    try {
      const GenerationShape shape{.height = 64, .width = 64};
      kept.get("decoder", "vae", "64", [&] { return plan_vae_decode(*model, shape, {}); });
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model) << e.what();
      return e.what();
    }
    return "ready";
  };
  EXPECT_EQ(get(), "[vae] cannot be opened");
  EXPECT_EQ(kept.counters().weights.bytes, 0);
  EXPECT_EQ(get(), "[vae] cannot be opened");
  kept.reread({{"vae", {"decoder.conv_in.bias"}}});
  there = true;
  EXPECT_EQ(get(), "ready");
}

// A network searched for the launch that overflowed runs as before in later pictures.
TEST(KeptNetworks, APictureThatOverflowsIsItsOwnError) {
  PipelineOptions options;
  options.type = DType::F32;
  options.keep_networks = true;
  TextToImage pipeline(StableDiffusionModel::open(""), options);
  ImageRequest r;
  r.prompt = "a red circle";
  r.width = r.height = 64;
  r.steps = 1;
  r.latents.assign(static_cast<size_t>(4 * 8 * 8), 3e38F);
  const auto error = [&]() -> std::string {
    try {
      pipeline.generate(r);
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  const std::string first = error();
  EXPECT_TRUE(first.starts_with("[step 1] [unet] launch '")) << first;
  EXPECT_EQ(error(), first);
}

}  // namespace
}  // namespace tenon
