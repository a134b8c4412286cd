// Configurations of the VAE, from a config.json or from weights.
#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/vae.h"
#include "tenon/models/weight_names.h"

namespace tenon {
namespace {
void expect_blocks(ConfigReader& r, const char* key, const std::string& type, size_t count) {
  const std::vector<std::string> types = r.names(key, {type});
  const bool good =
      types.size() == count && std::ranges::all_of(types, [&](const std::string& t) { return t == type; });
  if (!good) r.refuse(key, std::to_string(count) + " times \"" + type + "\", one for each of block_out_channels");
}
}  // namespace

VaeConfig flux_vae() {
  VaeConfig c;
  c.latent_channels = 16;
  c.scaling_factor = 0.3611;
  c.shift_factor = 0.1159;
  c.quant_conv = c.post_quant_conv = false;
  return c;
}

VaeConfig vae_config(const nlohmann::json& config, const std::string& where) {
  ConfigReader r(config, where);
  r.expect("_class_name", {"AutoencoderKL"});
  VaeConfig c;
  r.expect("in_channels", {3});
  r.expect("out_channels", {3});
  c.latent_channels = r.integer("latent_channels", 4, 1, 4096);
  c.norm_groups = r.integer("norm_num_groups", 32, 1, 1 << 16);
  c.channels = r.integers("block_out_channels", {64}, 0, 1, 1 << 16);
  if (c.channels.size() > 16) r.refuse("block_out_channels", "at most 16 levels");
  for (int64_t channels : c.channels)
    if (channels % c.norm_groups)
      r.refuse("block_out_channels", "multiples of norm_num_groups " + std::to_string(c.norm_groups));
  expect_blocks(r, "down_block_types", "DownEncoderBlock2D", c.channels.size());
  expect_blocks(r, "up_block_types", "UpDecoderBlock2D", c.channels.size());
  c.layers_per_block = r.integer("layers_per_block", 1, 1, 64);
  c.scaling_factor = r.number("scaling_factor", 0.18215, 1e-6, 1e6);
  c.quant_conv = r.flag("use_quant_conv", true);
  c.post_quant_conv = r.flag("use_post_quant_conv", true);
  c.mid_attention = r.flag("mid_block_add_attention", true);
  r.expect("act_fn", {"silu", "swish"});
  if (r.has("shift_factor")) c.shift_factor = r.number("shift_factor", 0, -1e6, 1e6);
  r.ignore({"shift_factor"});
  r.expect("latents_mean", {nullptr});
  r.expect("latents_std", {nullptr});
  r.ignore({"sample_size", "force_upcast"});
  r.finish();
  return c;
}

namespace {
VaeConfig detect_like(const VaeConfig& like, const WeightShapes& weights, const std::string& where) {
  const WeightNames w(weights, where, "a VAE");
  VaeConfig c = like;
  const Shape last = w.shape("decoder.conv_out.weight", 4), first = w.shape("decoder.conv_in.weight", 4);
  c.image_channels = last[0];
  c.latent_channels = first[1];
  w.refuse_if(c.image_channels != 3, "decoder.conv_out.weight",
              "images of " + std::to_string(c.image_channels) + " channels");
  w.refuse_if(c.latent_channels != like.latent_channels, "decoder.conv_in.weight",
              std::to_string(c.latent_channels) + " latent channels" +
                  (like.latent_channels == 4 ? " (SD3, Flux or such)" : ""));
  const int64_t levels = w.count("decoder.up_blocks.", ".resnets.0.conv1.weight");
  c.layers_per_block = w.count("decoder.up_blocks.0.resnets.", ".conv1.weight") - 1;
  TENON_CHECK(Model, levels <= 16 && c.layers_per_block >= 1, where)
      << "expected at most 16 decoder levels of at least 2 residual blocks, got " << levels << " of "
      << c.layers_per_block + 1;
  c.channels.clear();
  for (int64_t i = levels - 1; i >= 0; --i)
    c.channels.push_back(w.shape("decoder.up_blocks." + std::to_string(i) + ".resnets.0.conv1.weight", 4)[0]);
  for (int64_t channels : c.channels)
    TENON_CHECK(Model, channels % c.norm_groups == 0, where)
        << "a level has " << channels
        << " channels, not a multiple of 32 norm groups; give the number of groups in a config.json";
  c.quant_conv = w.has("quant_conv.weight");
  c.post_quant_conv = w.has("post_quant_conv.weight");
  c.mid_attention = w.has_prefix("decoder.mid_block.attentions.0.");
  return c;
}
}  // namespace

VaeConfig detect_vae(const WeightShapes& weights, const std::string& where) {
  return detect_like(VaeConfig(), weights, where);
}
VaeConfig detect_flux_vae(const WeightShapes& weights, const std::string& where) {
  return detect_like(flux_vae(), weights, where);
}

}  // namespace tenon
