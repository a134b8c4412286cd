// Configurations of Z-Image's transformer, from a config.json or from weights.
#include <algorithm>
#include <numeric>

#include "tenon/core/error.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/weight_names.h"
#include "tenon/models/z_image.h"

namespace tenon {

ZImageConfig z_image_config(const nlohmann::json& config, const std::string& where) {
  constexpr int64_t kMaxWidth = 1 << 17, kMaxLayers = 4096, kMaxPositions = 1 << 20;
  ConfigReader r(config, where);
  ZImageConfig c;
  r.expect("_class_name", {"ZImageTransformer2DModel"});
  r.expect("all_patch_size", {nlohmann::json::array({kZImagePatch})});
  r.expect("all_f_patch_size", {nlohmann::json::array({1})});
  c.channels = r.integer("in_channels", c.channels, 1, 4096);
  c.width = r.integer("dim", c.width, 2, kMaxWidth);
  c.layers = r.integer("n_layers", c.layers, 1, kMaxLayers);
  c.refiners = r.integer("n_refiner_layers", c.refiners, 0, kMaxLayers);
  c.heads = r.integer("n_heads", c.heads, 1, c.width);
  if (c.width % c.heads) r.refuse("n_heads", "a divisor of dim " + std::to_string(c.width));
  r.expect("n_kv_heads", {c.heads});
  c.eps = r.number("norm_eps", c.eps, 0, 1);
  r.expect("qk_norm", {true});
  c.text_width = r.integer("cap_feat_dim", c.text_width, 1, kMaxWidth);
  r.expect("siglip_feat_dim", {nullptr});
  c.theta = r.number("rope_theta", c.theta, 1, 1e12);
  c.time_scale = r.number("t_scale", c.time_scale, 1e-6, 1e6);
  const auto three = [&](const char* key, const std::array<int64_t, 3>& fallback, int64_t low, int64_t high) {
    const std::vector<int64_t> v = r.integers(key, {fallback.begin(), fallback.end()}, 3, low, high);
    return std::array<int64_t, 3>{v[0], v[1], v[2]};
  };
  c.axis_depths = three("axes_dims", c.axis_depths, 2, kMaxWidth);
  c.axis_lengths = three("axes_lens", {1024, 512, 512}, 1, kMaxPositions);
  const bool even = std::ranges::all_of(c.axis_depths, [](int64_t d) { return d % 2 == 0; });
  if (!even || std::accumulate(c.axis_depths.begin(), c.axis_depths.end(), int64_t{0}) != c.head_width())
    r.refuse("axes_dims", "even numbers that add up to a head's width " + std::to_string(c.head_width()));
  r.finish();
  return c;
}

ZImageConfig detect_z_image(const WeightShapes& weights, const std::string& where) {
  const WeightNames w(weights, where, "a Z-Image transformer");
  ZImageConfig c;
  constexpr const char *kEmbedder = "all_x_embedder.2-1.weight", *kHeadNorm = "layers.0.attention.norm_q.weight";
  w.shape("layers.0.adaLN_modulation.0.weight", 2);  // has another name in Lumina 2
  const Shape embedder = w.shape(kEmbedder, 2);
  c.text_width = w.shape("cap_embedder.0.weight", 1)[0];
  c.width = embedder[0];
  c.channels = embedder[1] / (kZImagePatch * kZImagePatch);
  w.refuse_if(c.width < 2 || c.text_width < 1 || c.channels < 1 || embedder[1] % (kZImagePatch * kZImagePatch),
              kEmbedder, "patches of " + std::to_string(embedder[1]) + " elements");
  c.layers = w.count("layers.", ".attention_norm1.weight");
  c.refiners = w.count("noise_refiner.", ".attention_norm1.weight");
  const int64_t head = w.shape(kHeadNorm, 1)[0];
  w.refuse_if(head < 16 || head % 16 || c.width % head, kHeadNorm,
              "heads of " + std::to_string(head) + " elements for a width of " + std::to_string(c.width));
  c.heads = c.width / head;
  c.axis_depths = {head / 4, head / 8 * 3, head / 8 * 3};
  return c;
}

}  // namespace tenon
