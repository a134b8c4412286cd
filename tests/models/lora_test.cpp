// LoRA files in all their spellings, their effect on weights, and errors about invalid ones.
#include "tenon/models/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tenon/core/error.h"
#include "tenon/models/stable_diffusion.h"
#include "tenon/models/z_image.h"
#include "tests/fixtures/lora_files.h"

namespace tenon {
namespace {
using fixtures::LoraFile;
using testing::HasSubstr;

const LoraNames& sd_names() {
  static const LoraNames names = stable_diffusion_lora_names(fixtures::tiny_stable_diffusion());
  return names;
}
const LoraNames& dit_names() {
  static const LoraNames names = [] {
    const WeightShapes all = decoder_weights(read_decoder_config(fixtures::z_image_recorded()["text"], "tiny"));
    WeightShapes read = all;
    std::erase_if(read, [](const auto& tensor) { return tensor.first.starts_with("model.layers.2."); });
    return z_image_lora_names(z_image_config(fixtures::z_image_recorded()["transformer"], "tiny"), read, all);
  }();
  return names;
}

std::string lora_tensor_of(const LoraNames& names, const std::string& layer) {
  const auto* targets = names.find(layer);
  std::string out;
  for (const LoraTarget& t : targets ? *targets : std::vector<LoraTarget>())
    out += (out.empty() ? "" : " ") + t.component + ":" + t.tensor +
           (t.first_row ? "@" + std::to_string(t.first_row) : "");
  return out;
}

TEST(LoraNames, StableDiffusion) {
  const std::string block = "down_blocks.1.attentions.0.transformer_blocks.0.";
  for (const std::string& name :
       {"unet." + block + "attn1.to_out.0", "base_model.model." + block + "attn1.to_out.0", block + "attn1.to_out",
        std::string("lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_out_0"),
        std::string("diffusion_model.input_blocks.4.1.transformer_blocks.0.attn1.to_out.0"),
        std::string("lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_out_0")})
    EXPECT_EQ(lora_tensor_of(sd_names(), name), "unet:" + block + "attn1.to_out.0.weight") << name;
  const std::string text = "text_model.encoder.layers.0.self_attn.";
  for (const std::string& name : {"text_encoder." + text + "q_proj", "text_encoder." + text + "to_q",
                                  std::string("lora_te_text_model_encoder_layers_0_self_attn_q_proj"),
                                  std::string("lora_te1_text_model_encoder_layers_0_self_attn_q_proj"),
                                  std::string("text_encoder.encoder.layers.0.self_attn.q_proj")})
    EXPECT_EQ(lora_tensor_of(sd_names(), name), "text_encoder:" + text + "q_proj.weight") << name;
  EXPECT_EQ(lora_tensor_of(sd_names(), "lora_unet_output_blocks_8_2_conv"),
            "unet:up_blocks.2.upsamplers.0.conv.weight");
  EXPECT_EQ(lora_tensor_of(sd_names(), "lora_unet_middle_block_1_proj_in"),
            "unet:mid_block.attentions.0.proj_in.weight");
  for (const char* none : {"lora_unet_", "unet.conv_norm_out", "vae.decoder.conv_in", "", "lora_te2_text_model",
                           "text_encoder.text_model.embeddings.token_embedding"})
    EXPECT_EQ(lora_tensor_of(sd_names(), none), "") << none;
  // All layers are found under their own names and kohya's, each as itself.
  for (const std::string& layer : sd_names().layers("unet")) {
    std::string flat = layer;
    std::ranges::replace(flat, '.', '_');
    EXPECT_EQ(lora_tensor_of(sd_names(), "lora_unet_" + flat), "unet:" + layer + ".weight");
  }
  EXPECT_EQ(sd_names().layers("unet").size(), 282U);
}

TEST(LoraNames, ZImage) {
  const std::string block = "layers.1.attention.";
  for (const std::string& name :
       {"transformer." + block + "to_out.0", "diffusion_model." + block + "out",
        std::string("lora_unet_layers_1_attention_to_out_0"), std::string("lora_unet_layers_1_attention_out")})
    EXPECT_EQ(lora_tensor_of(dit_names(), name), "transformer:" + block + "to_out.0.weight") << name;
  const std::string all = "transformer:" + block;
  EXPECT_EQ(lora_tensor_of(dit_names(), "diffusion_model." + block + "qkv"),
            all + "to_q.weight " + all + "to_k.weight@96 " + all + "to_v.weight@192");
  EXPECT_EQ(lora_tensor_of(dit_names(), "diffusion_model.x_embedder"), "transformer:all_x_embedder.2-1.weight");
  EXPECT_EQ(lora_tensor_of(dit_names(), "lora_unet_final_layer_linear"),
            "transformer:all_final_layer.2-1.linear.weight");
}

TEST(LoraNames, OfAComponentWithoutLayers) {
  LoraNames names;
  names.add("text_encoder", {}, {"text_encoder."});
  EXPECT_EQ(names.find("text_encoder.layers.0"), nullptr);
}

// The effect of a file on a weight of zeros.
std::vector<float> change_of(const Lora& lora, const std::string& component, const std::string& tensor) {
  const LoraChange& c = lora.changes.at(component).at(tensor);
  const int64_t rows = c.target.shape[0], columns = c.matrix->columns;
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i)
    c.matrix->add_row(c.target.first_row + i, 1,
                      std::span(out).subspan(static_cast<size_t>(i * columns), static_cast<size_t>(columns)));
  return out;
}

TEST(Lora, ValuesOfALowRankChange) {
  LoraFile file;
  const std::string layer = "lora_unet_mid_block_attentions_0_proj_in";
  const auto down = file.add(layer + ".lora_down.weight", {3, 96, 1, 1}),
             up = file.add(layer + ".lora_up.weight", {96, 3, 1, 1});
  file.put(layer + ".alpha", {}, {1.5F});
  const Lora lora = file.read(sd_names());
  EXPECT_EQ(lora.report.str(), "1 layer of unet, rank 3");
  const auto got = change_of(lora, "unet", "mid_block.attentions.0.proj_in.weight");
  for (size_t i = 0; i < 96; ++i)
    for (size_t j = 0; j < 96; ++j) {
      double want = 0;
      for (size_t r = 0; r < 3; ++r) want += 0.5 * up[i * 3 + r] * down[r * 96 + j];
      ASSERT_NEAR(got[i * 96 + j], want, 1e-6) << i << " " << j;
    }
}

TEST(Lora, FusedRowsAndTheirRepetition) {
  LoraFile file;
  file.add("diffusion_model.layers.0.attention.qkv.lora_A.weight", {2, 96});
  file.add("diffusion_model.layers.0.attention.qkv.lora_B.weight", {288, 2});
  const Lora lora = file.read(dit_names());
  EXPECT_EQ(lora.report.str(), "3 layers of transformer, rank 2");
  const auto& changes = lora.changes.at("transformer");
  EXPECT_EQ(changes.at("layers.0.attention.to_k.weight").target.first_row, 96);
  EXPECT_EQ(changes.at("layers.0.attention.to_q.weight").matrix, changes.at("layers.0.attention.to_v.weight").matrix);
  for (const char* part : {"to_q", "to_k", "to_v"}) {  // as repeated one by one by some tools
    file.add("diffusion_model.layers.0.attention." + std::string(part) + ".lora_A.weight", {1, 96});
    file.add("diffusion_model.layers.0.attention." + std::string(part) + ".lora_B.weight", {96, 1});
  }
  const Lora both = file.read(dit_names());
  EXPECT_EQ(both.report.redundant.size(), 2U);
  EXPECT_EQ(both.report.str(), "3 layers of transformer, rank 1");
}

// The text encoder's last layer, which trainers adapt too, does not count as one that has no place.
TEST(Lora, LayersThatAreNeverRead) {
  LoraFile file;
  for (const std::string layer : {"model.layers.0", "model.layers.2", "layers.2"}) {
    file.add("text_encoder." + layer + ".mlp.down_proj.lora_A.weight", {1, 48});
    file.add("text_encoder." + layer + ".mlp.down_proj.lora_B.weight", {40, 1});
  }
  const Lora lora = file.read(dit_names());
  EXPECT_EQ(lora.report.str(), "1 layer of text_encoder, rank 1");
  EXPECT_EQ(lora.report.redundant.size(), 4U);
  EXPECT_TRUE(lora.report.unmatched.empty());
  file.add("text_encoder.model.layers.9.mlp.down_proj.lora_A.weight", {1, 48});
  EXPECT_THROW(file.read(dit_names()), Error);
  EXPECT_EQ(dit_names().find("text_encoder.model.embed_tokens"), nullptr);
}

TEST(Lora, KroneckerProducts) {
  LoraFile file;
  const std::string layer = "diffusion_model.layers.0.feed_forward.w2";  // [96, 256]
  const auto w1 = file.add(layer + ".lokr_w1", {4, 8}), a = file.add(layer + ".lokr_w2_a", {24, 2}),
             b = file.add(layer + ".lokr_w2_b", {2, 32});
  file.put(layer + ".alpha", {}, {3});
  const auto got = change_of(file.read(dit_names()), "transformer", "layers.0.feed_forward.w2.weight");
  for (size_t i = 0; i < 96; ++i)
    for (size_t j = 0; j < 256; ++j) {
      const double w2 = a[i % 24 * 2] * b[j % 32] + a[i % 24 * 2 + 1] * b[32 + j % 32];
      ASSERT_NEAR(got[i * 256 + j], 1.5 * w1[i / 24 * 8 + j / 32] * w2, 1e-6) << i << " " << j;
    }
}

TEST(Lora, ScalesOfPeft) {
  LoraFile file;
  const std::string layer = "mid_block.attentions.0.proj_in";
  file.add("unet." + layer + ".lora_A.weight", {4, 96});
  file.add("unet." + layer + ".lora_B.weight", {96, 4});
  const auto scale = [&](const std::string& notes) {
    file.metadata["lora_adapter_metadata"] = notes;
    return file.read(sd_names()).changes.at("unet").at(layer + ".weight").matrix->scale;
  };
  EXPECT_EQ(scale("{}"), 1);
  EXPECT_EQ(scale(R"({"unet.lora_alpha": 4, "unet.init_lora_weights": "gaussian"})"), 1);
  for (const char* start : {"pissa", "olora", "loftq"})  // they change the model's weights, too
    EXPECT_THROW(scale(R"({"unet.lora_alpha": 4, "unet.init_lora_weights": ")" + std::string(start) + "\"}"), Error);
  EXPECT_EQ(scale(R"({"unet.r": 4, "unet.lora_alpha": 8})"), 2);
  EXPECT_EQ(scale(R"({"unet.lora_alpha": 8, "unet.use_rslora": true})"), 4);
  EXPECT_EQ(scale(R"({"text_encoder.lora_alpha": 8})"), 1);
  EXPECT_EQ(scale(R"({"unet.lora_alpha": 8, "unet.alpha_pattern": {"attentions.0.proj_in": 2, "proj": 1}})"), 0.5);
  EXPECT_EQ(scale(R"({"unet.lora_alpha": 8, "unet.alpha_pattern": {"0.proj_in": 4, "proj_in": 16}})"), 1);
  EXPECT_EQ(scale(R"({"unet.lora_alpha": 8, "unet.alpha_pattern": {"roj_in": 4, "proj_in": 16}})"), 4);
  EXPECT_EQ(scale(R"({"unet.lora_alpha": 8, "unet.alpha_pattern": {"^mid_block.attentions.0.proj_in": 4}})"), 1);
  EXPECT_EQ(scale(R"({"unet.lora_alpha": 8, "unet.alpha_pattern": {"^attentions.0.proj_in": 4}})"), 2);
  EXPECT_THROW(scale(R"({"unet.lora_alpha": 8, "unet.alpha_pattern": {"mid_block.*proj_in": 4}})"), Error);
  EXPECT_THROW(scale(R"({"unet.lora_alpha": "x"})"), Error);
  EXPECT_THROW(scale(R"({"unet.use_dora": true})"), Error);
  EXPECT_THROW(scale("[1]"), Error);
}

class WrongLora : public testing::Test {
 protected:
  const std::string layer = "unet.mid_block.attentions.0.proj_in";
  LoraFile file;
  void fill(const Shape& down, const Shape& up) {
    file.add(layer + ".lora_A.weight", down);
    file.add(layer + ".lora_B.weight", up);
  }
  void expect_refused(const std::vector<std::string>& parts, const LoraNames& names = sd_names(),
                      LoraRest rest = LoraRest::Refused) {
    try {
      file.read(names, rest);
      ADD_FAILURE() << "read; expected: " << parts.front();
    } catch (const Error& e) {
      EXPECT_EQ(e.exit_code(), 3) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("x.safetensors"));
      for (const std::string& part : parts) EXPECT_THAT(e.what(), HasSubstr(part));
    }
  }
};

TEST_F(WrongLora, Shapes) {
  fill({4, 95}, {96, 4});
  expect_refused({"lora_A.weight' is [4,95]", "[r,96]"}, sd_names(), LoraRest::LeftOut);
  fill({4, 96}, {96, 5});
  expect_refused({"lora_B.weight' is [96,5]", "[96,4]"});
  fill({0, 96}, {96, 0});
  expect_refused({"lora_A.weight' is [0,96]"});
  fill({4, 96}, {96});
  expect_refused({"lora_B.weight' is [96]"});
}

TEST_F(WrongLora, Values) {
  fill({4, 96}, {96, 4});
  std::vector<float> bad(384, 0.5F);
  bad[7] = std::numeric_limits<float>::quiet_NaN();
  file.put(layer + ".lora_A.weight", {4, 96}, bad);
  expect_refused({layer + ".lora_A.weight' holds nan at element 7"});
  bad[7] = std::numeric_limits<float>::infinity();
  file.put(layer + ".lora_A.weight", {4, 96}, bad);
  expect_refused({"holds inf"});
  fill({4, 96}, {96, 4});
  file.put(layer + ".alpha", {2}, {1, 2});
  expect_refused({layer + ".alpha' is [2]"});
}

TEST_F(WrongLora, Halves) {
  file.add(layer + ".lora_A.weight", {4, 96});
  expect_refused({"has no 'lora_B.weight'"});
  file = {};
  file.put(layer + ".alpha", {}, {4});
  expect_refused({"has no 'lora_A.weight' beside '" + layer + ".alpha'"});
}

TEST_F(WrongLora, OtherModels) {
  fill({4, 96}, {96, 4});
  expect_refused({"not a LoRA for this model", layer}, dit_names(), LoraRest::LeftOut);
  file.add("lora_te2_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", {4, 24});
  expect_refused({"1 of 3 tensors", "lora_te2_text_model", "--lora-partial"});
  EXPECT_EQ(file.read(sd_names(), LoraRest::LeftOut).report.unmatched.size(), 1U);
}

TEST_F(WrongLora, KindsThatAreNotRead) {
  fill({4, 96}, {96, 4});
  const std::string other = "lora_unet_conv_in";
  file.add(other + ".lora_down.weight", {1, 4, 3, 3});
  file.add(other + ".lora_up.weight", {32, 1, 1, 1});
  file.add(other + ".dora_scale", {32, 1});
  expect_refused({"3 of 5 tensors", other + ".dora_scale"});
  EXPECT_FALSE(file.read(sd_names(), LoraRest::LeftOut).changes.at("unet").contains("conv_in.weight"));
  file.add("lora_unet_conv_out.hada_w1_a", {4, 2});
  expect_refused({"4 of 6 tensors"});
}

// A tensor of unknown kind takes its layer with it.
TEST_F(WrongLora, PartsThatAreNotRead) {
  for (const std::string part :
       {".lora_magnitude_vector", ".lora_magnitude_vector.weight", ".lora_magnitude_vector.default.weight",
        ".lora_B.bias", ".lora_B.default.bias", ".lora_up.bias", ".hada_w1_a", ".anything.at.all"}) {
    SCOPED_TRACE(part);
    file = {};
    fill({4, 96}, {96, 4});
    file.add("unet.conv_in.lora_A.weight", {1, 4, 3, 3});
    file.add("unet.conv_in.lora_B.weight", {32, 1, 1, 1});
    file.add(layer + part, {96});
    expect_refused({"3 of 5 tensors", "such as '" + layer + part, "--lora-partial"});
    const Lora lora = file.read(sd_names(), LoraRest::LeftOut);
    EXPECT_EQ(lora.report.unmatched.size(), 3U);
    EXPECT_EQ(lora.report.str(), "1 layer of unet, rank 1");
    EXPECT_TRUE(lora.changes.at("unet").contains("conv_in.weight"));
  }
  file = {};
  const std::string attention = "unet.mid_block.attentions.0.transformer_blocks.0.attn1";
  file.add(attention + ".processor.to_q_lora.down.weight", {4, 96});
  file.add(attention + ".processor.to_q_lora.up.weight", {96, 4});
  file.add(attention + ".processor.to_q.magnitude", {96});
  expect_refused({"not supported", "to_q.magnitude"}, sd_names(), LoraRest::LeftOut);
}

TEST_F(WrongLora, DoraIsCalledSo) {
  for (const std::string part : {".dora_scale", ".lora_magnitude_vector", ".lora_magnitude_vector.default.weight"})
    for (const LoraRest rest : {LoraRest::Refused, LoraRest::LeftOut}) {
      file = {};
      fill({4, 96}, {96, 4});
      file.add(layer + part, {96});
      expect_refused({"is a DoRA, which is not supported", layer + part}, sd_names(), rest);
      expect_refused({"not a LoRA for this model"}, dit_names(), rest);
    }
  file = {};
  fill({4, 96}, {96, 4});
  file.add(layer + ".diff_b", {96});
  expect_refused({"kinds that are not supported", layer + ".diff_b"});
}

TEST_F(WrongLora, Kronecker) {
  const std::string name = "diffusion_model.layers.0.feed_forward.w2";
  file.add(name + ".lokr_w1", {4, 8});
  expect_refused({"has no 'lokr_w2_a'"}, dit_names());
  file.add(name + ".lokr_w2", {24, 31});
  expect_refused({"[4,8] and [24,31]", "[96,256]"}, dit_names());
}

TEST_F(WrongLora, TwoForOneWeight) {
  fill({4, 96}, {96, 4});
  file.add("lora_unet_mid_block_attentions_0_proj_in.lora_down.weight", {4, 96});
  file.add("lora_unet_mid_block_attentions_0_proj_in.lora_up.weight", {96, 4});
  expect_refused({"two layers change 'mid_block.attentions.0.proj_in.weight'"});
}

}  // namespace
}  // namespace tenon
