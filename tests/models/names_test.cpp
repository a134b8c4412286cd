// Names and shapes of the weights: the published totals, the recorded tables, reports of differences, detection.
#include <gmock/gmock.h>

#include <sstream>

#include "tenon/models/registry.h"
#include "tests/models/model_fixtures.h"

namespace tenon {
namespace {
using namespace models_test;

// tests/fixtures/sd15_names.tsv: component, name, single-file name, published shape, tiny shape ("-": absent).
struct Table {
  WeightShapes full, tiny;
};
Table recorded(const std::string& component) {
  Table out;
  std::ifstream in(fixture_path("sd15_names.tsv"));
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cell(1);
    for (char c : line) c == '\t' ? (void)cell.emplace_back() : cell.back().push_back(c);
    if (cell[0] != component) continue;
    const auto shape = [](std::string text) {
      std::ranges::replace(text, 'x', ' ');
      std::istringstream numbers(text);
      std::vector<int64_t> dims;
      for (int64_t d; numbers >> d;) dims.push_back(d);
      return Shape(std::span<const int64_t>(dims));
    };
    out.full.emplace(cell[1], shape(cell[3]));
    if (cell[4] != "-") out.tiny.emplace(cell[1], shape(cell[4]));
  }
  return out;
}

void expect_table(const WeightShapes& found, const WeightShapes& expected) {
  EXPECT_EQ(check_weights(expected, found).str(), "");
  EXPECT_TRUE(found == expected);  // including extents of 1
}

TEST(Names, PublishedTotals) {
  const StableDiffusionConfig& c = model_preset("sd15").config;
  const auto expect_total = [](const WeightShapes& w, size_t tensors, int64_t parameters) {
    EXPECT_EQ(w.size(), tensors);
    EXPECT_EQ(parameter_count(w), parameters);
  };
  expect_total(unet_weights(c.unet), 686, 859'520'964);
  expect_total(clip_text_weights(c.text), 196, 123'060'480);
  expect_total(vae_weights(c.vae), 248, 83'653'863);
  expect_total(vae_decoder_weights(c.vae), vae_weights(c.vae).size() - vae_encoder_weights(c.vae).size(), 49'490'199);
}

TEST(Names, RecordedTables) {
  const StableDiffusionConfig full;
  expect_table(unet_weights(full.unet), recorded("unet").full);
  expect_table(clip_text_weights(full.text), recorded("text").full);
  expect_table(vae_weights(full.vae), recorded("vae").full);
  StableDiffusionConfig tiny = model_preset("tiny").config;
  tiny.text.vocabulary = recorded("text").tiny.at("text_model.embeddings.token_embedding.weight")[0];
  expect_table(unet_weights(tiny.unet), recorded("unet").tiny);
  expect_table(clip_text_weights(tiny.text), recorded("text").tiny);
  expect_table(vae_weights(tiny.vae), recorded("vae").tiny);
}

TEST(Names, ConfigAndPresetAgree) {
  const StableDiffusionConfig tiny = model_preset("tiny").config;
  EXPECT_EQ(unet_weights(unet_config(Parity::get().config("unet"), "tiny")), unet_weights(tiny.unet));
  EXPECT_EQ(vae_weights(vae_config(Parity::get().config("vae"), "tiny")), vae_weights(tiny.vae));
}

TEST(Names, ReportOfDifferences) {
  const WeightShapes expected{{"a", {2, 3}}, {"b", {4}}, {"c", {5, 6, 1, 1}}};
  EXPECT_TRUE(
      check_weights(expected, {{"a", {2, 3}}, {"b", {4}}, {"c", {5, 6}}, {"x.position_ids", {1, 77}}}).str().empty());
  const WeightReport report = check_weights(expected, {{"a", {3, 2}}, {"c", {5, 6, 1}}, {"d", {1}}});
  EXPECT_THAT(report.missing, testing::ElementsAre("b"));
  EXPECT_THAT(report.unexpected, testing::ElementsAre("d"));
  ASSERT_EQ(report.wrong_shape.size(), 1u);
  EXPECT_EQ(report.wrong_shape[0].name, "a");
  EXPECT_FALSE(report.usable());
  EXPECT_EQ(report.str(), "1 missing: b; 1 of the wrong shape: a (expected [2,3], found [3,2]); 1 unexpected: d");
  try {
    require_weights(report, "file");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Model);
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr(": b"), testing::Not(testing::HasSubstr("unexpected"))));
  }
  EXPECT_NO_THROW(require_weights(check_weights({}, {{"d", {1}}}), "file"));
}

// A quantised weight is wrong without its scales, and integers are not weights.
TEST(Names, WeightsThatAreNotWhatTheySay) {
  const WeightShapes expected{{"to_q.weight", {2, 3}}};
  for (const char* scale : {"to_q.weight_scale", "to_q.weight_scale_inv", "to_q.weight.absmax", "to_q.scale_weight",
                            "to_q.scale", "to_q_scale"}) {
    const WeightReport report = check_weights(expected, {{"to_q.weight", {2, 3}}, {scale, {1}}});
    EXPECT_FALSE(report.usable()) << scale;
    EXPECT_THAT(report.str(), testing::HasSubstr(std::string("beside a quantised weight (not supported): ") + scale));
    EXPECT_THROW(require_weights(report, "file"), Error);
  }
  EXPECT_TRUE(check_weights(expected, {{"to_q.weight", {2, 3}}, {"to_k.scale", {1}}, {"x.weight_g", {1}}}).usable());
  EXPECT_NO_THROW(require_floats(expected, {{"to_q.weight", {DType::BF16, {2, 3}, nullptr, 0}}}, "file"));
  for (const DType type : {DType::I8, DType::U8, DType::I32, DType::Bool})
    EXPECT_THROW(require_floats(expected, {{"to_q.weight", {type, {2, 3}, nullptr, 0}}}, "file"), Error)
        << name_of(type);
}

TEST(Detection, FromWeights) {
  for (const char* preset : {"sd15", "tiny"}) {
    const StableDiffusionConfig& c = model_preset(preset).config;
    expect_table(unet_weights(detect_unet(unet_weights(c.unet), "x")), unet_weights(c.unet));
    expect_table(vae_weights(detect_vae(vae_weights(c.vae), "x")), vae_weights(c.vae));
    expect_table(clip_text_weights(detect_clip_text(clip_text_weights(c.text), "x")), clip_text_weights(c.text));
  }
  const WeightShapes text = clip_text_weights({});
  EXPECT_EQ(detect_clip_text(text, "x").heads, 12);
  EXPECT_EQ(detect_unet(unet_weights({}), "x").levels[0].heads, 8);
}

// Changes a table and expects a refusal that contains `words`.
template <class Detect>
void expect_refusal(Detect detect, WeightShapes weights, const WeightShapes& change, const std::string& words) {
  for (const auto& [name, shape] : change) weights.insert_or_assign(name, shape);
  try {
    detect(weights, "file.safetensors");
    FAIL() << "accepted, expected " << words;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Model);
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr(words), testing::HasSubstr("file.safetensors")));
  }
}

TEST(Detection, RefusesOtherArchitectures) {
  const WeightShapes unet = unet_weights({}), vae = vae_weights({}), text = clip_text_weights({});
  expect_refusal(detect_unet, unet, {{"conv_in.weight", {320, 9, 3, 3}}}, "inpainting");
  expect_refusal(detect_unet, unet, {{"conv_in.weight", {320, 8, 3, 3}}}, "8 input");
  expect_refusal(detect_unet, unet, {{"add_embedding.linear_1.weight", {1280, 2816}}}, "SDXL");
  expect_refusal(detect_unet, unet, {{"mid_block.attentions.0.proj_in.weight", {1280, 1280}}}, "2.x");
  expect_refusal(detect_unet, unet, {{"mid_block.attentions.0.transformer_blocks.0.attn2.to_k.weight", {1280, 1024}}},
                 "2.x");
  expect_refusal(detect_unet, {}, {{"double_blocks.0.x", {1}}}, "Flux");
  expect_refusal(detect_unet, {}, {{"a", {1}}}, "conv_in.weight");
  expect_refusal(detect_unet, unet, {{"down_blocks.1.resnets.0.conv1.weight", {650, 320, 3, 3}}}, "multiple of 32");
  expect_refusal(detect_unet, unet, {{"time_embedding.linear_1.weight", {1280}}}, "rank");
  expect_refusal(detect_vae, vae, {{"decoder.conv_in.weight", {512, 16, 3, 3}}}, "16 latent");
  expect_refusal(detect_vae, {}, {{"a", {1}}}, "decoder.conv_out.weight");
  expect_refusal(detect_clip_text, {}, {{"transformer.resblocks.0.ln_1.weight", {1024}}}, "OpenCLIP");
  expect_refusal(detect_clip_text, text, {{"text_model.embeddings.token_embedding.weight", {49408, 1024}}}, "OpenCLIP");
  expect_refusal(detect_clip_text, {}, {{"a", {1}}}, "token_embedding");
}

TEST(Presets, ListedAndRefusedByName) {
  std::vector<std::string> names;
  for (const ModelPreset* p : model_presets()) {
    names.push_back(p->name);
    EXPECT_FALSE(p->summary.empty());
    EXPECT_NO_THROW(check_parts_fit(p->config, p->name));
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"sd15", "tiny"}));
  EXPECT_THROW(model_preset("sd16"), Error);
  StableDiffusionConfig c;
  c.text.hidden = 1024;
  EXPECT_THROW(check_parts_fit(c, "x"), Error);
  c.text.hidden = c.unet.context_dim;
  EXPECT_NO_THROW(check_parts_fit(c, "x"));
  c.vae.shift_factor = 0.1;
  EXPECT_THROW(check_parts_fit(c, "x"), Error);
}

}  // namespace
}  // namespace tenon
