// The networks, evaluated in fp64, against numbers from the specification and from diffusers and transformers, on the
// same hash weights.
#include "tenon/expr/ops.h"
#include "tenon/models/clip_text.h"
#include "tenon/models/unet.h"
#include "tenon/models/vae.h"
#include "tests/models/model_fixtures.h"

namespace tenon {
namespace {
using namespace models_test;

UNetConfig tiny_unet() { return unet_config(Parity::get().config("unet"), "tiny"); }
VaeConfig tiny_vae() {
  VaeConfig c = vae_config(Parity::get().config("vae"), "tiny");
  c.scaling_factor = 1;  // the recorded latents are the decoder's direct input
  return c;
}

std::unique_ptr<Graph> graph() { return std::make_unique<Graph>(); }

// ---- text encoder ----

struct TextRun {
  std::unique_ptr<Graph> g = graph();
  ClipTextConfig config;
  std::vector<double> ids;
  int64_t batch = 0;

  explicit TextRun(const std::string& name) {
    const auto& c = Parity::get().of(name);
    config = clip_text_config(c.contains("config") ? c["config"] : Parity::get().config("text"), name);
    for (const auto& row : c["ids"])
      for (const auto& id : row) ids.push_back(id.get<double>());
    batch = static_cast<int64_t>(c["ids"].size());
  }
  std::vector<double> run(int64_t clip_skip) {
    const int64_t length = static_cast<int64_t>(ids.size()) / batch;
    const Expr out = clip_text(*g, config, batch, length, nn::kF32, clip_skip);
    EXPECT_EQ(out.shape(), (Shape{batch, length, config.hidden}));
    EXPECT_EQ(out->rate, Rate::Prompt);
    return hash_oracle(clip_text_weights(config), {{"tokens", ids}}).eval(out);
  }
};

TEST(Text, Golden) {
  const auto out = TextRun("golden-text").run(0);
  expect_starts_with(out, {1.308995, -0.219782, -0.483864, 1.654928});
  EXPECT_LE(std::abs(mean_magnitude(out) - 0.784634), 1e-4);
  expect_parity("golden-text", "out", out);
}

TEST(Text, TwoPromptsAndClipSkip) {
  expect_parity("text", "out", TextRun("text").run(0));
  expect_parity("text", "clip_skip.1", TextRun("text").run(1));
}

// ---- UNet ----

// Evaluates a UNet case with its timestep as the middle one of a schedule of three.
struct UNetRun {
  std::unique_ptr<Graph> g = graph();
  Expr out;
  Oracle oracle;

  explicit UNetRun(const std::string& name) : oracle(Oracle::Leaves()) {
    const auto& c = Parity::get().of(name);
    const Shape x = shape_of(c["x"]["shape"]), context = shape_of(c["context"]["shape"]);
    const UNetShape shape{.batch = x[0], .height = x[2], .width = x[3], .tokens = context[1], .timesteps = 3};
    out = unet(*g, tiny_unet(), shape, nn::kF32);
    oracle = hash_oracle(unet_weights(tiny_unet()), {{"latents", hash_input(c["x"]["k"], x.numel())},
                                                     {"context", hash_input(c["context"]["k"], context.numel())},
                                                     {"timesteps", {7, c["t"].get<double>(), 400}},
                                                     {"step", {1}}});
  }
};

TEST(UNet, Golden) {
  UNetRun run("golden-unet");
  EXPECT_EQ(run.out.shape(), (Shape{1, 4, 8, 16}));
  const auto out = run.oracle.eval(run.out);
  expect_starts_with(out, {-0.540937, 0.141105, 0.212298, 0.175724, -0.226748, -0.494084, -0.430948, -0.806619});
  EXPECT_LE(std::abs(mean_magnitude(out) - 0.651823), 1e-4);
  expect_parity("golden-unet", "out", out);
}

TEST(UNet, OddSizesAndFractionalTime) {
  for (const char* name : {"unet-5x11", "unet-16x16-fractional", "unet-1x3"}) {
    UNetRun run(name);
    expect_parity(name, "out", run.oracle.eval(run.out));
  }
}

// The weight that ends a part of a network, and the number of additions after it: bias, then residual.
std::pair<std::string, int> end_of(const std::string& part) {
  if (part == "mid_block") return end_of("mid_block.resnets.1");
  if (part.find(".resnets.") != std::string::npos) return {part + ".conv2.weight", 2};
  if (part.find("mid_block.attentions.") != std::string::npos && part.find("coder.") != std::string::npos)
    return {part + ".to_out.0.weight", 2};
  if (part.find(".attentions.") != std::string::npos) return {part + ".proj_out.weight", 2};
  if (part.find("samplers.") != std::string::npos) return {part + ".conv.weight", 1};
  if (part == "time_embedding") return {part + ".linear_2.weight", 1};
  return {part + ".weight", 1};
}

void expect_parts(const std::string& name, const Expr& out, Oracle& oracle) {
  for (const auto& [part, what] : Parity::get().of(name)["expect"].items()) {
    if (part == "out" || part == "conv_norm_out") continue;
    const auto [weight, additions] = end_of(part);
    Expr value = behind_weight(out, weight, additions);
    if (value.shape().rank() == 4) value = permute(value, {0, 3, 1, 2});
    if (part == "time_embedding") value = broadcast(slice(value, 0, 1, 2), {2, value.shape()[1]});
    EXPECT_EQ(value.shape(), shape_of(what["shape"])) << part;
    expect_parity(name, part, oracle.eval(value));
  }
  expect_parity(name, "out", oracle.eval(out));
}

TEST(UNet, EveryPartOfAnOddBatch) {
  UNetRun run("unet-9x7-b2");
  expect_parts("unet-9x7-b2", run.out, run.oracle);
}

// Guidance doubles the batch: both halves use the same latents and their own text.
TEST(UNet, GuidanceUsesTheLatentsTwice) {
  const auto& c = Parity::get().of("unet-5x11");
  const Shape x = shape_of(c["x"]["shape"]), context = shape_of(c["context"]["shape"]);
  Graph g;
  const Expr out =
      unet(g, tiny_unet(), {.guided = true, .height = x[2], .width = x[3], .tokens = context[1]}, nn::kF32);
  ASSERT_EQ(out.shape(), (Shape{2, 4, x[2], x[3]}));
  std::vector<double> text = hash_input(5, context.numel());
  const std::vector<double> positive = hash_input(c["context"]["k"], context.numel());
  text.insert(text.end(), positive.begin(), positive.end());
  Oracle oracle = hash_oracle(unet_weights(tiny_unet()), {{"latents", hash_input(c["x"]["k"], x.numel())},
                                                          {"context", text},
                                                          {"timesteps", {c["t"].get<double>()}},
                                                          {"step", {0}}});
  const auto both = oracle.eval(out);
  expect_parity("unet-5x11", "out", {both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2), both.end()});
}

// ---- VAE ----

struct VaeRun {
  std::unique_ptr<Graph> g = graph();
  Expr out;
  Oracle oracle;

  explicit VaeRun(const std::string& name) : oracle(Oracle::Leaves()) {
    const auto& c = Parity::get().of(name);
    const Shape x = shape_of(c["x"]["shape"]);
    const auto values = hash_input(c["x"]["k"], x.numel());
    if (c["kind"] == "vae-decode") {
      out = permute(vae_decode(*g, tiny_vae(), x[0], x[2], x[3], nn::kF32, ImageRange::Signed), {0, 3, 1, 2});
      oracle = hash_oracle(vae_weights(tiny_vae()), {{"latents", values}});
    } else {
      out = vae_encode(*g, tiny_vae(), x[0], x[2], x[3], nn::kF32);
      // Recorded images are NCHW, ours NHWC.
      const Expr as_nhwc = permute(input(*g, "nchw", DType::F32, x), {0, 2, 3, 1});
      oracle = hash_oracle(vae_weights(tiny_vae()), {{"image", hash_oracle({}, {{"nchw", values}}).eval(as_nhwc)}});
    }
  }
};

TEST(Vae, GoldenEncode) {
  VaeRun run("golden-vae-encode");
  EXPECT_EQ(run.out.shape(), (Shape{1, 8, 2, 4}));
  const auto out = run.oracle.eval(run.out);
  expect_starts_with(out, {-0.186250, -0.417941, -0.226888, -0.101986});
  EXPECT_LE(std::abs(mean_magnitude(out) - 0.241546), 1e-4);
  expect_parts("golden-vae-encode", run.out, run.oracle);
}

TEST(Vae, GoldenDecode) {
  VaeRun run("golden-vae-decode");
  EXPECT_EQ(run.out.shape(), (Shape{1, 3, 16, 32}));
  const auto out = run.oracle.eval(run.out);
  expect_starts_with(out, {-0.157314, -0.430386, -0.387993, -0.320992});
  EXPECT_LE(std::abs(mean_magnitude(out) - 0.752496), 1e-4);
  expect_parts("golden-vae-decode", run.out, run.oracle);
}

TEST(Vae, OtherSizes) {
  for (const char* name :
       {"vae-72x56-encode", "vae-72x56-decode", "vae-8x24-encode", "vae-8x24-decode", "vae-decode-b2"}) {
    VaeRun run(name);
    expect_parity(name, "out", run.oracle.eval(run.out));
  }
}

TEST(Vae, ScalingFactorAndUnitRange) {
  VaeConfig c = tiny_vae();
  const auto latents = hash_input(3, 8);
  std::vector<double> scaled = latents;
  for (double& v : scaled) v *= 0.5;
  Graph g;
  const WeightShapes names = vae_weights(c);
  const auto plain =
      hash_oracle(names, {{"latents", latents}}).eval(vae_decode(g, c, 1, 1, 2, nn::kF32, ImageRange::Signed));
  c.scaling_factor = 0.5;
  const auto unit = hash_oracle(names, {{"latents", scaled}}).eval(vae_decode(g, c, 1, 1, 2, nn::kF32));
  ASSERT_EQ(plain.size(), unit.size());
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_LE(std::abs(std::clamp(plain[i] / 2 + 0.5, 0.0, 1.0) - unit[i]), 1e-9);
}

// ---- bf16 ----

// Rounding to bf16 at the storage points stays near the exact network.
TEST(UNet, Bf16StaysNear) {
  Graph g;
  const UNetShape shape{.height = 5, .width = 11};
  const Shape x{1, 4, 5, 11}, context{1, 77, 24};
  const auto evaluate = [&](nn::Precision p) {
    return hash_oracle(unet_weights(tiny_unet()), {{"latents", hash_input(1001, x.numel())},
                                                   {"context", hash_input(1002, context.numel())},
                                                   {"timesteps", {1}},
                                                   {"step", {0}}})
        .eval(unet(g, tiny_unet(), shape, p));
  };
  EXPECT_TRUE(agrees(evaluate(nn::kBf16), evaluate(nn::kF32), 0.05));
}

}  // namespace
}  // namespace tenon
