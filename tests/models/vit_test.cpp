// Vision transformers against timm and transformers on the same hash weights (tests/fixtures/vit.*,
// tools/fixtures/vit.py), recognising layouts by their names, and resampling of positions against published weights.
#include "tenon/models/vit.h"

#include "tenon/expr/ops.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"
#include "tests/models/model_fixtures.h"

namespace tenon {
namespace {
using namespace models_test;

const nlohmann::json& cases() {
  static const nlohmann::json all = nlohmann::json::parse(std::ifstream(fixture_path("vit.json")))["cases"];
  return all;
}

WeightShapes shapes_in(const nlohmann::json& named) {
  WeightShapes out;
  for (const auto& [name, dims] : named.items()) out.emplace(name, shape_of(dims));
  return out;
}

// The fixture's weights by timm's names; also parts of packed matrices, by the names of split layouts.
class HashedVit : public WeightSource {
 public:
  HashedVit(const nlohmann::json& c, const VitConfig& config) : width_(config.width), hidden_(config.hidden) {
    uint32_t rank = 0;
    for (const auto& [name, shape] : shapes_in(c["timm"])) {
      const double fan_in = static_cast<double>(shape.numel()) / static_cast<double>(shape[0]);
      const bool norm = name.find("norm") != name.npos && name.ends_with("weight");
      double scale = name.ends_with(".weight") ? std::sqrt(12 / fan_in) : 0.3, centre = 0;
      if (norm || name.ends_with("gamma")) {
        scale = 0.4;
        centre = norm ? 1 : 0.5;
      }
      std::vector<float>& values = values_[name];
      for (int64_t i = 0; i < shape.numel(); ++i)
        values.push_back(static_cast<float>(centre + scale * fixtures::u(rank + 1, static_cast<uint32_t>(i))));
      shapes_[name] = shape;
      ++rank;
    }
    // The original with registers stores the class token's position, here 0, before the patches'.
    if (c["layout"] == "original" && config.registers) {
      auto& table = values_.at("pos_embed");
      table.insert(table.begin(), static_cast<size_t>(width_), 0.0f);
      shapes_["pos_embed"] = {1, 1 + config.grid * config.grid, width_};
    }
  }

  HostView find(const std::string& name) const override {
    for (const auto& [part, packed, index] : kParts) {
      const size_t at = name.find(part);
      if (at == name.npos) continue;
      const std::string whole = std::string(name).replace(at, std::string_view(part).size(), packed);
      Shape shape = shapes_.at(whole);
      shape[0] = std::string_view(packed) == "attn.qkv." ? width_ : hidden_;
      return {DType::F32, shape, values_.at(whole).data() + index * shape.numel()};
    }
    return {DType::F32, shapes_.at(name), values_.at(name).data()};
  }

 private:
  struct Part {
    const char *name, *packed;
    int64_t index;
  };
  static constexpr Part kParts[] = {{"attn.query.", "attn.qkv.", 0},
                                    {"attn.key.", "attn.qkv.", 1},
                                    {"attn.value.", "attn.qkv.", 2},
                                    {"mlp.gate.", "mlp.fc1.", 0},
                                    {"mlp.up.", "mlp.fc1.", 1}};
  int64_t width_, hidden_;
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, Shape> shapes_;
};

class VitParity : public testing::TestWithParam<size_t> {};

std::vector<float> run(const nlohmann::json& c, const VitConfig& config, const PlanOptions& options,
                       nn::Precision p = nn::kF32) {
  const int64_t height = c["height"], width = c["width"];
  Graph g;
  const Plan plan = make_plan(std::array{Result{"tokens", vit(g, config, 1, height, width, p)}}, options);
  Executable executable(plan, make_backend("cpu"), HashedVit(c, config));
  const std::vector<double> planes = hash_input(c["k"], 3 * height * width);
  std::vector<float> pixels;  // the fixture's are NCHW
  for (int64_t i = 0; i < height * width; ++i)
    for (int64_t channel = 0; channel < 3; ++channel)
      pixels.push_back(static_cast<float>(planes[static_cast<size_t>(channel * height * width + i)]));
  executable.set("pixels", pixels);
  executable.run_all();
  return executable.get("tokens");
}

std::vector<double> expected(const nlohmann::json& c) {
  static const SafetensorsFile file = SafetensorsFile::open(fixture_path("vit.safetensors"));
  const TensorView& t = file.at(c["name"]);
  std::vector<double> out;
  for (int64_t i = 0; i < t.shape.numel(); ++i) out.push_back(load_element(t.dtype, t.data, i));
  return out;
}

testing::AssertionResult agrees_with(const nlohmann::json& c, const std::vector<float>& found, double tolerance) {
  return agrees({found.begin(), found.end()}, expected(c), tolerance, c["stride"]);
}

TEST_P(VitParity, EqualsTheReference) {
  const nlohmann::json& c = cases().at(GetParam());
  const VitConfig config = detect_vit(shapes_in(c["stored"]), c["config"], c["name"]);
  EXPECT_TRUE(agrees_with(c, run(c, config, {}), 1e-4));
  PlanOptions apart;
  apart.fusion = false;
  if (config.width < 1000) {
    EXPECT_TRUE(agrees_with(c, run(c, config, apart), 1e-4));
  }
}

TEST_P(VitParity, FoldingScalesChangesRoundingOnly) {
  const nlohmann::json& c = cases().at(GetParam());
  const VitConfig config = detect_vit(shapes_in(c["stored"]), c["config"], c["name"]);
  PlanOptions unfolded;
  unfolded.fold_scales = false;
  const std::vector<float> folded = run(c, config, {}), plain = run(c, config, unfolded);
  EXPECT_NE(folded, plain);
  EXPECT_TRUE(close_to_largest(folded, plain, 1e-5));
}

TEST_P(VitParity, Bf16StaysNear) {
  const nlohmann::json& c = cases().at(GetParam());
  const VitConfig config = detect_vit(shapes_in(c["stored"]), c["config"], c["name"]);
  EXPECT_TRUE(agrees_with(c, run(c, config, {}, nn::kBf16), 0.03));
}

INSTANTIATE_TEST_SUITE_P(Cases, VitParity, testing::Range<size_t>(0, cases().size()), [](const auto& chosen) {
  std::string name = cases().at(chosen.param)["name"];
  std::erase(name, '-');
  return name;
});

TEST(Vit, TellsLayoutsApart) {
  for (const nlohmann::json& c : cases()) {
    const std::string name = c["name"], layout = c["layout"];
    const WeightShapes stored = shapes_in(c["stored"]);
    ASSERT_TRUE(is_vit(stored)) << name;
    const VitConfig config = detect_vit(stored, c["config"], name);
    EXPECT_EQ(config.source == VitSource::HuggingFace, layout == "transformers") << name;
    EXPECT_EQ(config.source == VitSource::Original, layout == "original") << name;
    EXPECT_EQ(config.gated, c["gated"].get<bool>()) << name;
    EXPECT_EQ(config.registers, c["registers"].get<int64_t>()) << name;
    const bool plain = layout != "timm" && config.registers == 0;
    EXPECT_EQ(config.resample, !plain                 ? VitResample::Antialias
                               : layout == "original" ? VitResample::PlainOffset
                                                      : VitResample::Plain)
        << name;
    // The network reads exactly what the checkpoint has.
    WeightShapes named;
    for (const auto& [stored_name, shape] : stored)
      if (const std::string timm = vit_name(stored_name); !timm.empty()) named.emplace(timm, shape);
    EXPECT_EQ(named, vit_weights(config)) << name;
  }
}

TEST(Vit, NamesOfOlderTransformersAndChunkedBlocks) {
  EXPECT_EQ(vit_name("dinov2.encoder.layer.11.attention.attention.query.weight"), "blocks.11.attn.query.weight");
  EXPECT_EQ(vit_name("encoder.layer.3.attention.output.dense.bias"), "blocks.3.attn.proj.bias");
  EXPECT_EQ(vit_name("encoder.layer.3.mlp.weights_in.weight"), "blocks.3.mlp.fc1.weight");
  EXPECT_EQ(vit_name("encoder.layer.3.mlp.weights_out.bias"), "blocks.3.mlp.fc2.bias");
  EXPECT_EQ(vit_name("blocks.2.31.mlp.w12.weight"), "blocks.31.mlp.fc1.weight");
  EXPECT_EQ(vit_name("embeddings.mask_token"), "");
  EXPECT_EQ(vit_name("blocks.x.norm1.weight"), "");
  EXPECT_EQ(vit_name("head.weight"), "");
}

TEST(Vit, PublishedSizes) {
  const std::map<std::string, std::pair<size_t, int64_t>> published = {{"vit-g14", {566, 1136479232}},
                                                                       {"vit-g14-reg", {567, 1136483840}}};
  size_t seen = 0;
  for (const VitPreset& p : vit_presets()) {
    const WeightShapes w = vit_weights(p.config);
    if (const auto it = published.find(p.name); it != published.end()) {
      EXPECT_EQ(w.size(), it->second.first);
      EXPECT_EQ(parameter_count(w), it->second.second);
      ++seen;
    }
    VitConfig detected = detect_vit(w, nullptr, p.name);
    EXPECT_EQ(detected.heads, p.config.heads) << p.name;
    EXPECT_EQ(detected.hidden, p.config.hidden) << p.name;
    EXPECT_EQ(detected.class_position, p.config.class_position) << p.name;
  }
  EXPECT_EQ(seen, published.size());
  EXPECT_EQ(vit_presets().size(), 8u);
}

// Row `i` of the matrix from 37 to 16 samples begins with `weights` at column `first` and is 0 elsewhere.
void expect_row(VitResample how, int64_t i, int64_t first, const std::vector<double>& weights) {
  Graph g;
  const std::vector<double> m = Oracle(Oracle::Leaves()).eval(resample_matrix(g, 37, 16, how));
  for (int64_t j = 0; j < 37; ++j) {
    const auto at = static_cast<size_t>(j - first);
    const double wanted = j >= first && at < weights.size() ? weights[at] : 0;
    EXPECT_LE(std::abs(m.at(static_cast<size_t>(i * 37 + j)) - wanted), 2e-6) << "row " << i << " column " << j;
  }
}

TEST(Vit, ATableOfNoRegistersIsResampledLikeOneOfSome) {
  for (const nlohmann::json& c : cases()) {
    if (c["layout"] == "timm" || c["registers"] != 0) continue;
    WeightShapes stored = shapes_in(c["stored"]);
    const VitConfig before = detect_vit(stored, c["config"], "model");
    stored[c["layout"] == "original" ? "register_tokens" : "embeddings.register_tokens"] = {1, 0, before.width};
    const VitConfig config = detect_vit(stored, c["config"], "model");
    EXPECT_EQ(config.registers, 0);
    EXPECT_NE(before.resample, VitResample::Antialias);
    EXPECT_EQ(config.resample, VitResample::Antialias) << c["name"];
  }
}

TEST(Vit, ResamplingWeights) {
  expect_row(VitResample::Antialias, 0, 0, {.387186, .441451, .209256, -.003056, -.031817, -.003020});
  expect_row(VitResample::Antialias, 8, 15,
             {-.007093, -.031870, .018384, .243594, .428314, .320481, .074068, -.029513, -.016364});
  expect_row(VitResample::Plain, 0, 0, {-.058159 + .384285, .784904, -.111031});
  expect_row(VitResample::Plain, 8, 18, {-.083427, .949837, .149042, -.015449});
  expect_row(VitResample::PlainOffset, 0, 0, {-.059951 + .393905, .776929, -.110883});
  expect_row(VitResample::PlainOffset, 8, 18, {-.023901, .997424, .027322, -.000845});
}

TEST(Vit, RefusesWhatItIsNot) {
  const nlohmann::json& c = cases().at(0);
  WeightShapes stored = shapes_in(c["stored"]);
  const auto refused = [](const WeightShapes& shapes, const std::string& words,
                          const nlohmann::json& config = nullptr) {
    try {
      detect_vit(shapes, config, "model");
      ADD_FAILURE() << "expected an error with: " << words;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model);
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  WeightShapes odd = stored;
  odd["pos_embed"] = {1, 19, 128};
  refused(odd, "19 rows");
  odd = stored;
  odd["patch_embed.proj.weight"] = {128, 4, 14, 14};
  refused(odd, "filters [width,3,p,p]");
  odd = stored;
  odd["head.weight"] = {10, 128};
  EXPECT_NO_THROW(detect_vit(odd, nullptr, "model"));
  for (const char* of_cait : {"blocks.0.gamma_1", "blocks.1.attn.proj_l.weight", "blocks_token_only.0.norm1.weight"}) {
    odd = stored;
    odd[of_cait] = {128};
    refused(odd, std::string("no tensor '") + of_cait);
  }
  odd = stored;
  odd.erase("blocks.0.mlp.fc2.weight");
  refused(odd, "blocks.0.mlp.fc2.weight");
  refused(stored, "num_attention_heads", {{"num_attention_heads", 3}});
  const VitConfig narrow{.grid = 4, .width = 96, .depth = 1, .heads = 3, .hidden = 128, .gated = false};
  refused(vit_weights(narrow), "width 96 is not a multiple of 64");
  refused(vit_weights(narrow), "num_attention_heads", {{"layer_norm_eps", 1e-6}});
  EXPECT_EQ(detect_vit(vit_weights(narrow), {{"num_attention_heads", 3}}, "model").heads, 3);
  EXPECT_FALSE(is_vit({{"unet.conv_in.weight", {4, 4, 3, 3}}}));
  Graph g;
  EXPECT_THROW(vit(g, VitConfig(), 1, 224, 225, nn::kF32), Error);
}

}  // namespace
}  // namespace tenon
