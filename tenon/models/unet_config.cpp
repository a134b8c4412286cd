// Configurations of the UNet, from a config.json or from weights.
#include <algorithm>
#include <functional>

#include "tenon/core/error.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/unet.h"
#include "tenon/models/weight_names.h"

namespace tenon {
namespace {

// A number, or a list with the same one for each of `levels` blocks.
int64_t same_for_all(ConfigReader& r, std::string_view key, int64_t fallback, size_t levels, int64_t hi) {
  const std::vector<int64_t> all = r.integers(key, {fallback}, levels, 1, hi);
  if (std::ranges::adjacent_find(all, std::ranges::not_equal_to()) != all.end())
    r.refuse(key, "one number for all blocks (lists of different numbers are not implemented)");
  return all[0];
}

// Options of UNet2DConditionModel that are not implemented.
void expect_plain(ConfigReader& r) {
  r.expect("act_fn", {"silu", "swish"});
  r.expect("mid_block_type", {"UNetMidBlock2DCrossAttn"});
  r.expect("downsample_padding", {1});
  r.expect("mid_block_scale_factor", {1});
  r.expect("resnet_out_scale_factor", {1});
  r.expect("resnet_time_scale_shift", {"default"});
  r.expect("time_embedding_type", {"positional"});
  r.expect("attention_type", {"default"});
  r.expect("conv_in_kernel", {3});
  r.expect("conv_out_kernel", {3});
  for (const char* key :
       {"center_input_sample", "dual_cross_attention", "use_linear_projection", "resnet_skip_time_act",
        "class_embeddings_concat", "mid_block_only_cross_attention", "only_cross_attention"})
    r.expect(key, {false, nullptr});
  for (const char* key :
       {"class_embed_type", "num_class_embeds", "encoder_hid_dim", "encoder_hid_dim_type", "addition_embed_type",
        "projection_class_embeddings_input_dim", "time_embedding_act_fn", "timestep_post_act", "time_cond_proj_dim",
        "cross_attention_norm", "reverse_transformer_layers_per_block"})
    r.expect(key, {nullptr});
  // upcast_attention asks for f32 attention scores; they are always f32 here.
  r.ignore({"sample_size", "dropout", "upcast_attention", "addition_embed_type_num_heads", "addition_time_embed_dim"});
}

// For each block in the order of the list: true if its type is `with`, false if `without`.
std::vector<bool> attention_flags(ConfigReader& r, std::string_view key, const std::vector<std::string>& types,
                                  const std::string& with, const std::string& without) {
  const std::string supported = "a list of " + with + " and " + without;
  std::vector<bool> out;
  for (const std::string& t : types) {
    if (t != with && t != without) r.refuse(key, supported);
    out.push_back(t == with);
  }
  return out;
}

void read_levels(ConfigReader& r, UNetConfig& c) {
  const std::vector<int64_t> channels = r.integers("block_out_channels", {320, 640, 1280, 1280}, 0, 1, 1 << 16);
  if (channels.size() > 16) r.refuse("block_out_channels", "at most 16 levels");
  // Despite its name, attention_head_dim is the number of heads in every published 1.x configuration.
  const bool named = r.has("num_attention_heads");
  const char* heads_key = named ? "num_attention_heads" : "attention_head_dim";
  const std::vector<int64_t> heads = r.integers(heads_key, {8}, channels.size(), 1, 4096);
  if (named) r.ignore({"attention_head_dim"});
  r.ignore({"num_attention_heads"});
  const auto down = attention_flags(r, "down_block_types",
                                    r.names("down_block_types", {"CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
                                                                 "CrossAttnDownBlock2D", "DownBlock2D"}),
                                    "CrossAttnDownBlock2D", "DownBlock2D");
  const auto up = attention_flags(
      r, "up_block_types",
      r.names("up_block_types", {"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"}),
      "CrossAttnUpBlock2D", "UpBlock2D");
  if (down.size() != channels.size())
    r.refuse("down_block_types", std::to_string(channels.size()) + " blocks, one for each of block_out_channels");
  if (up.size() != channels.size())
    r.refuse("up_block_types", std::to_string(channels.size()) + " blocks, one for each of block_out_channels");
  c.levels.clear();
  for (size_t i = 0; i < channels.size(); ++i) {
    if (channels[i] % c.norm_groups)
      r.refuse("block_out_channels", "multiples of norm_num_groups " + std::to_string(c.norm_groups));
    if (channels[i] % heads[i]) r.refuse(heads_key, "divisors of block_out_channels");
    c.levels.push_back({channels[i], heads[i], down[i], up[up.size() - 1 - i]});
  }
  if (channels[0] % 2) r.refuse("block_out_channels", "an even first entry");
}

}  // namespace

UNetConfig unet_config(const nlohmann::json& config, const std::string& where) {
  ConfigReader r(config, where);
  r.expect("_class_name", {"UNet2DConditionModel"});
  UNetConfig c;
  c.in_channels = r.integer("in_channels", 4, 1, 4096);
  c.out_channels = r.integer("out_channels", 4, 1, 4096);
  if (c.in_channels != c.out_channels)
    r.refuse("in_channels", std::to_string(c.out_channels) +
                                " as out_channels (inpainting and instruct-pix2pix networks are not supported)");
  c.norm_groups = r.integer("norm_num_groups", 32, 1, 1 << 16);
  c.norm_eps = r.number("norm_eps", 1e-5, 0, 1);
  read_levels(r, c);
  c.layers_per_block = same_for_all(r, "layers_per_block", 2, c.levels.size(), 64);
  c.context_dim = same_for_all(r, "cross_attention_dim", 1280, c.levels.size(), 1 << 16);
  constexpr const char* kTransformers = "transformer_layers_per_block";
  if (same_for_all(r, kTransformers, 1, c.levels.size(), 64) != 1)
    r.refuse(kTransformers, "1 (nothing else is implemented)");
  c.time_dim = 4 * c.levels[0].channels;
  if (r.has("time_embedding_dim")) c.time_dim = r.integer("time_embedding_dim", 0, 1, 1 << 16);
  r.ignore({"time_embedding_dim"});
  c.freq_shift = r.number("freq_shift", 0, 0, static_cast<double>(c.levels[0].channels / 2) - 0.5);
  c.sin_first = !r.flag("flip_sin_to_cos", true);
  expect_plain(r);
  r.finish();
  return c;
}

UNetConfig detect_unet(const WeightShapes& weights, const std::string& where) {
  const WeightNames w(weights, where, "a UNet");
  const auto refuse_prefix = [&](const std::string& prefix, const std::string& found) {
    w.refuse_if(w.has_prefix(prefix), prefix + "..", found);
  };
  refuse_prefix("add_embedding.", "SDXL");
  refuse_prefix("label_emb.", "SDXL");
  refuse_prefix("class_embedding.", "a class-conditioned UNet");
  for (const char* prefix :
       {"joint_blocks.", "double_blocks.", "single_blocks.", "transformer_blocks.", "layers.0.attention"})
    refuse_prefix(prefix, "a diffusion transformer (SD3, Flux, Z-Image or such)");
  UNetConfig c;
  const Shape first = w.shape("conv_in.weight", 4);
  c.in_channels = first[1];
  c.out_channels = w.shape("conv_out.weight", 4)[0];
  w.refuse_if(c.in_channels == 9, "conv_in.weight", "an inpainting network (9 input channels)");
  w.refuse_if(c.in_channels != c.out_channels, "conv_in.weight",
              "a network with " + std::to_string(c.in_channels) + " input and " + std::to_string(c.out_channels) +
                  " output channels");
  c.time_dim = w.shape("time_embedding.linear_1.weight", 2)[0];
  c.layers_per_block = w.count("down_blocks.0.resnets.", ".conv1.weight");
  const int64_t levels = w.count("down_blocks.", ".resnets.0.conv1.weight");
  c.levels.clear();
  for (int64_t i = 0; i < levels; ++i) {
    const std::string down = "down_blocks." + std::to_string(i), up = "up_blocks." + std::to_string(levels - 1 - i);
    c.levels.push_back({w.shape(down + ".resnets.0.conv1.weight", 4)[0], 8, w.has_prefix(down + ".attentions."),
                        w.has_prefix(up + ".attentions.")});
    w.refuse_if(w.has(down + ".attentions.0.transformer_blocks.1.norm1.weight"),
                down + ".attentions.0.transformer_blocks.1.norm1.weight", "SDXL");
  }
  const std::string block = "mid_block.attentions.0.";
  c.context_dim = w.shape(block + "transformer_blocks.0.attn2.to_k.weight", 2)[1];
  w.refuse_if(c.context_dim == 1024, block + "transformer_blocks.0.attn2.to_k.weight",
              "Stable Diffusion 2.x (text width 1024)");
  const auto entry = weights.find(block + "proj_in.weight");
  w.refuse_if(entry != weights.end() && entry->second.rank() == 2, block + "proj_in.weight",
              "Stable Diffusion 2.x (linear projections)");
  for (const UNetConfig::Level& l : c.levels)
    TENON_CHECK(Model, l.channels % 32 == 0, where)
        << "a level has " << l.channels
        << " channels, not a multiple of 32 norm groups; give the number of groups in a config.json";
  return c;
}

}  // namespace tenon
