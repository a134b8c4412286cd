// Z-Image's transformer, evaluated in fp64, against diffusers' numbers on the same hash weights
// (tools/fixtures/z_image.py).
#include "tenon/models/z_image.h"

#include <numeric>

#include "tenon/expr/ops.h"
#include "tests/fixtures/z_image_folder.h"
#include "tests/models/model_fixtures.h"

namespace tenon {
namespace {
using namespace models_test;

const Parity& z_images() { return Parity::get("z_image"); }
ZImageConfig tiny_z_image() { return z_image_config(z_images().head()["transformer"], "tiny"); }

std::vector<double> text_norm(const WeightShapes& names) {
  const auto at = names.find(fixtures::kZImageTextNorm);
  const auto rank = static_cast<uint32_t>(std::distance(names.begin(), at));
  const std::vector<float> w = fixtures::z_image_weight(at->first, rank, at->second.numel());
  return {w.begin(), w.end()};
}

struct ZImageRun {
  Graph g;
  Expr out;
  std::vector<int64_t> texts;
  int64_t rows = 0;  // per text
  Oracle oracle;

  explicit ZImageRun(const std::string& name, nn::Precision p = nn::kF32) : oracle(Oracle::Leaves()) {
    const auto& c = z_images().of(name);
    nlohmann::json about = z_images().head()["transformer"];
    about.update(c.value("config", nlohmann::json::object()));
    const ZImageConfig config = z_image_config(about, name);
    const Shape x = shape_of(c["latents"]["shape"]);
    texts = c["text"]["tokens"].get<std::vector<int64_t>>();
    const auto filled = [](int64_t n) { return (n + kZImageSequence - 1) / kZImageSequence * kZImageSequence; };
    ZImageShape shape{.batch = x[0], .height = x[2], .width = x[3], .timesteps = 3};
    for (const int64_t n : texts) rows = shape.tokens = std::max(rows, filled(n));
    for (const int64_t n : texts) shape.equal_texts = shape.equal_texts && filled(n) == rows;
    out = z_image(g, config, shape, p);
    const WeightShapes names = z_image_weights(config);
    oracle = hash_oracle(names, {{"latents", hash_input(c["latents"]["k"], x.numel())},
                                 {"text", text_of(c, config.text_width)},
                                 {"text_tokens", {texts.begin(), texts.end()}},
                                 {"times", {0.5, c["t"].get<double>(), 0.1}},
                                 {"step", {1}},
                                 {fixtures::kZImageTextNorm, text_norm(names)}});
  }
  // Rows after a text's end contain numbers that must not be read.
  std::vector<double> text_of(const nlohmann::json& c, int64_t width) const {
    const int64_t all = std::accumulate(texts.begin(), texts.end(), int64_t{0});
    const std::vector<double> stream = hash_input(c["text"]["k"], all * width, 4.0);
    std::vector<double> padded;
    auto from = stream.begin();
    for (const int64_t n : texts) {
      padded.insert(padded.end(), from, from + n * width);
      padded.resize(padded.size() + static_cast<size_t>((rows - n) * width), 123.0);
      from += n * width;
    }
    return padded;
  }
  // A block's output: the first sum after its last norm's scale.
  Expr behind_block(const std::string& part) const {
    const auto nodes = topological(std::array{out});
    const auto find = [&](auto&& wanted) { return *std::ranges::find_if(nodes, wanted); };
    Expr at = find([&](const Expr& e) { return e->attrs.text == part + ".ffn_norm2.weight"; });
    while (at->name() != "add") at = find([&](const Expr& e) { return std::ranges::find(e->in, at) != e->in.end(); });
    return at;
  }
};

TEST(ZImage, PublishedNumbers) {
  ZImageRun run("golden");
  ASSERT_EQ(run.out.shape(), (Shape{1, 16, 6, 10}));
  const auto out = run.oracle.eval(run.out);
  expect_starts_with(out, {1.188705, 2.770653, 1.479852, 0.672930, 0.827560, 0.700864, 0.866948, 1.527097});
  EXPECT_LE(std::abs(mean_magnitude(out) - 1.038438), 1e-4);
  EXPECT_EQ(z_image_weights(tiny_z_image()).size(), 101U);
}

TEST(ZImage, EveryBlock) {
  for (const char* name : {"golden", "whole-rows"}) {
    ZImageRun run(name);
    const Expr time = behind_weight(run.out, "t_embedder.mlp.2.weight", 1);
    expect_parity(name, "t_embedder", run.oracle.eval(slice(time, 0, 1, 2)), 1e-5, z_images());
    for (const char* part :
         {"noise_refiner.0", "noise_refiner.1", "context_refiner.0", "context_refiner.1", "layers.0"})
      expect_parity(name, part, run.oracle.eval(run.behind_block(part)), 1e-5, z_images());
  }
}

// Texts of different lengths in a batch, masked and not. The reference's angles of times and positions are f32
// products.
TEST(ZImage, WholeNetwork) {
  for (const char* name : {"golden", "whole-rows", "two-lengths", "equal-rows", "large-eps"}) {
    ZImageRun run(name);
    expect_parity(name, "out", run.oracle.eval(run.out), 1e-4, z_images());
  }
}

TEST(ZImage, Bf16StaysNear) {
  ZImageRun exact("two-lengths"), rounded("two-lengths", nn::kBf16);
  EXPECT_TRUE(agrees(rounded.oracle.eval(rounded.out), exact.oracle.eval(exact.out), 0.1));
}

// Guidance: both halves use the same latents and their own text.
TEST(ZImage, GuidanceUsesTheLatentsTwice) {
  const ZImageConfig c = tiny_z_image();
  const WeightShapes names = z_image_weights(c);
  const auto evaluate = [&](const ZImageShape& s, std::vector<double> text, std::vector<double> tokens) {
    Graph g;
    const Expr out = z_image(g, c, s, nn::kF32);
    return hash_oracle(names, {{"latents", hash_input(7, 16 * 16)},
                               {"text", std::move(text)},
                               {"text_tokens", std::move(tokens)},
                               {"times", {0.3}},
                               {"step", {0}},
                               {fixtures::kZImageTextNorm, text_norm(names)}})
        .eval(out);
  };
  const ZImageShape one{.height = 4, .width = 4};
  const std::vector<double> a = hash_input(8, 32 * c.text_width), b = hash_input(9, 32 * c.text_width);
  std::vector<double> text = a, want = evaluate(one, a, {32});
  const std::vector<double> other = evaluate(one, b, {5});
  text.insert(text.end(), b.begin(), b.end());
  want.insert(want.end(), other.begin(), other.end());
  EXPECT_TRUE(agrees(evaluate({.guided = true, .height = 4, .width = 4}, text, {32, 5}), want, 1e-9));
}

TEST(ZImage, PublishedSizes) {
  const WeightShapes names = z_image_weights(ZImageConfig());
  EXPECT_EQ(names.size(), 521U);
  EXPECT_EQ(parameter_count(names), 6'154'908'736);
}

// Nothing that depends only on the schedule or the prompt is left in a step.
TEST(ZImage, Rates) {
  Graph g;
  const Expr out = z_image(g, tiny_z_image(), {.batch = 2, .tokens = 64, .equal_texts = false}, nn::kBf16);
  for (const Expr& e : topological(std::array{out})) {
    if (e->family() != Family::Anchor) continue;
    std::string weight;
    for (const Expr& x : topological(std::array{e->in[1]}))
      if (x.is<nodes::Param>()) weight = x->attrs.text;
    const bool of_schedule = weight.find("adaLN") != weight.npos || weight.starts_with("t_embedder");
    const bool of_prompt = weight.starts_with("context_refiner") || weight.starts_with("cap_embedder");
    if (weight.empty()) continue;  // attention
    EXPECT_EQ(e->rate, of_schedule ? Rate::Schedule : of_prompt ? Rate::Prompt : Rate::Step) << weight;
  }
}

TEST(ZImage, RefusesWhatDoesNotFit) {
  Graph g;
  const ZImageConfig c = tiny_z_image();
  EXPECT_THROW(z_image(g, c, {.height = 3, .width = 4}, nn::kF32), Error);
  EXPECT_THROW(z_image(g, c, {.height = 4, .width = 4, .tokens = 31}, nn::kF32), Error);
  const auto refused = [](const char* key, const nlohmann::json& value, const char* what) {
    nlohmann::json config = z_images().head()["transformer"];
    config[key] = value;
    try {
      z_image_config(config, "config.json");
      ADD_FAILURE() << key << " " << value;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model);
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
    }
  };
  refused("all_patch_size", {2, 4}, "'all_patch_size' is [2,4]");
  refused("siglip_feat_dim", 1152, "'siglip_feat_dim' is 1152");
  refused("n_kv_heads", 1, "'n_kv_heads' is 1, expected 3");
  refused("axes_dims", {8, 12, 14}, "add up to a head's width 32");
  refused("axes_dims", {7, 13, 12}, "even numbers");
  refused("n_heads", 5, "'n_heads' is 5, expected a divisor of dim 96");
  refused("qk_norm", false, "'qk_norm' is false");
  refused("dim", 1e9, "'dim'");
}

}  // namespace
}  // namespace tenon
