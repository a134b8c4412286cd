// Configurations: class defaults, published files, and a refusal by key and value for all that is not implemented.
#include <gmock/gmock.h>

#include "tenon/models/clip_text.h"
#include "tenon/models/unet.h"
#include "tenon/models/vae.h"
#include "tests/models/model_fixtures.h"

namespace tenon {
namespace {
using nlohmann::json;

const json kUNet = {{"cross_attention_dim", 768}}, kVae = json::parse(R"({
  "_class_name": "AutoencoderKL", "_diffusers_version": "0.6.0", "act_fn": "silu", "block_out_channels": [128, 256, 512, 512],
  "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
  "in_channels": 3, "latent_channels": 4, "layers_per_block": 2, "norm_num_groups": 32, "out_channels": 3,
  "sample_size": 512, "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]})");
const json kText = json::parse(R"({"architectures": ["CLIPTextModel"], "attention_dropout": 0.0, "bos_token_id": 0,
  "dropout": 0.0, "eos_token_id": 2, "hidden_act": "quick_gelu", "hidden_size": 768, "initializer_factor": 1.0,
  "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 77,
  "model_type": "clip_text_model", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
  "projection_dim": 768, "torch_dtype": "float32", "transformers_version": "4.22.0.dev0", "vocab_size": 49408})");

TEST(Config, PublishedFilesGiveTheDefaults) {
  EXPECT_EQ(unet_weights(unet_config(kUNet, "x")), unet_weights({}));
  EXPECT_EQ(vae_weights(vae_config(kVae, "x")), vae_weights({}));
  EXPECT_EQ(vae_config(kVae, "x").scaling_factor, 0.18215);
  EXPECT_EQ(clip_text_weights(clip_text_config(kText, "x")), clip_text_weights({}));
  EXPECT_EQ(clip_text_config(kText, "x").heads, 12);
}

TEST(Config, HeadsByLevelAndLopsidedAttention) {
  json j = kUNet;
  j["attention_head_dim"] = {5, 10, 20, 20};
  EXPECT_EQ(unet_config(j, "x").levels[1].heads, 10);
  j["num_attention_heads"] = 4;
  EXPECT_EQ(unet_config(j, "x").levels[2].heads, 4);
  j["up_block_types"] = {"CrossAttnUpBlock2D", "UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"};
  const UNetConfig c = unet_config(j, "x");
  EXPECT_TRUE(c.levels[3].up_attention);
  EXPECT_FALSE(c.levels[3].down_attention);
  EXPECT_FALSE(c.levels[2].up_attention);
  EXPECT_TRUE(unet_weights(c).contains("up_blocks.0.attentions.2.norm.weight"));
  j["flip_sin_to_cos"] = false;
  j["freq_shift"] = 1;
  EXPECT_TRUE(unet_config(j, "x").sin_first);
  EXPECT_EQ(unet_config(j, "x").freq_shift, 1);
}

// One changed key, and what the message must contain besides the key and the file.
struct RefusedConfig {
  const char* key;
  json value;
  const char* words;
};

template <class Read>
void expect_refusals(Read read, const json& base, const std::vector<RefusedConfig>& refusals) {
  for (const RefusedConfig& r : refusals) {
    json j = base;
    j[r.key] = r.value;
    try {
      read(j, "some/config.json");
      ADD_FAILURE() << r.key << " = " << r.value << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model) << r.key;
      EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("some/config.json"), testing::HasSubstr(r.key),
                                           testing::HasSubstr(r.value.dump()), testing::HasSubstr(r.words)));
    }
  }
}

TEST(Config, UNetListsOfOneNumber) {
  json config = kUNet;
  const UNetConfig plain = unet_config(config, "x");
  for (const auto& [key, number] :
       {std::pair{"transformer_layers_per_block", 1}, {"layers_per_block", 2}, {"cross_attention_dim", 768}})
    config[key] = std::vector<int>(4, number);
  const UNetConfig listed = unet_config(config, "x");
  EXPECT_EQ(listed.layers_per_block, plain.layers_per_block);
  EXPECT_EQ(listed.context_dim, plain.context_dim);
}

TEST(Config, UNetRefusals) {
  expect_refusals(unet_config, kUNet,
                  {{"_class_name", "UNet3DConditionModel", "UNet2DConditionModel"},
                   {"in_channels", 9, "inpainting"},
                   {"use_linear_projection", true, "false"},
                   {"addition_embed_type", "text_time", "null"},
                   {"class_embed_type", "timestep", "null"},
                   {"act_fn", "gelu", "silu"},
                   {"mid_block_type", nullptr, "UNetMidBlock2DCrossAttn"},
                   {"transformer_layers_per_block", 2, "expected 1 "},
                   {"transformer_layers_per_block", {1, 2, 4, 10}, "different numbers are not implemented"},
                   {"transformer_layers_per_block", {1, 1}, "one number, or 4"},
                   {"layers_per_block", {2, 2, 2, 3}, "different numbers are not implemented"},
                   {"down_block_types", {"CrossAttnDownBlock2D", "AttnDownBlock2D"}, "DownBlock2D"},
                   {"up_block_types", {"UpBlock2D"}, "4 blocks"},
                   {"block_out_channels", {320, 650, 1280, 1280}, "multiples"},
                   {"block_out_channels", json::array(), "one number"},
                   {"block_out_channels", {320, -640}, "whole number"},
                   {"attention_head_dim", 7, "divisors"},
                   {"attention_head_dim", {8, 8}, "4"},
                   {"norm_num_groups", nullptr, "whole number"},
                   {"norm_eps", "small", "number"},
                   {"layers_per_block", 2.5, "whole number"},
                   {"cross_attention_dim", 18446744073709551615ull, "whole number"},
                   {"center_input_sample", true, "false"},
                   {"flip_sin_to_cos", 1, "true or false"},
                   {"resnet_time_scale_shift", "scale_shift", "default"},
                   {"conv_in_kernel", 1, "3"},
                   {"downsample_padding", 0, "1"}});
  EXPECT_THROW(unet_config(json::array(), "x"), Error);
}

TEST(Config, VaeRefusals) {
  expect_refusals(vae_config, kVae,
                  {{"_class_name", "AutoencoderTiny", "AutoencoderKL"},
                   {"shift_factor", "0.1159", "-1e+06"},
                   {"latents_mean", {0.0}, "null"},
                   {"down_block_types", {"DownEncoderBlock2D"}, "4 times"},
                   {"up_block_types", {"A", "B", "C", "D"}, "UpDecoderBlock2D"},
                   {"scaling_factor", 0, "number"},
                   {"out_channels", 4, "3"},
                   {"act_fn", "relu", "silu"}});
}

TEST(Config, TextRefusals) {
  expect_refusals(clip_text_config, kText,
                  {{"hidden_act", "relu", "quick_gelu"},
                   {"num_attention_heads", 11, "divisor"},
                   {"model_type", "t5", "clip_text_model"},
                   {"num_hidden_layers", 0, "whole number"},
                   {"layer_norm_eps", true, "number"}});
}

TEST(Inputs, ThatDoNotFitAreRefused) {
  Graph g;
  EXPECT_THROW(clip_text(g, {}, 1, 78, nn::kF32), Error);
  EXPECT_THROW(clip_text(g, {}, 1, 77, nn::kF32, 12), Error);
  EXPECT_THROW(vae_encode(g, {}, 1, 60, 64, nn::kF32), Error);
  EXPECT_THROW(vae_decode(VaeConfig{}, input(g, "z", DType::F32, {1, 3, 8, 8}), nn::kF32), Error);
  UNetInputs in = unet_inputs(g, {}, {}, nn::kBf16);
  in.context = input(g, "text", DType::BF16, {3, 77, 768}, Rate::Prompt);
  EXPECT_THROW(unet({}, in, nn::kBf16), Error);
}

}  // namespace
}  // namespace tenon
