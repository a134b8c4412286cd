// Configurations of Z-Image's transformer: from a config.json.
#include <algorithm>
#include <numeric>

#include "tenon/core/error.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/z_image.h"

namespace tenon {

ZImageConfig z_image_config(const nlohmann::json& config, const std::string& where) {
  constexpr int64_t kMostWidth = 1 << 17, kMostLayers = 4096, kMostPositions = 1 << 20;
  ConfigReader r(config, where);
  ZImageConfig c;
  r.expect("_class_name", {"ZImageTransformer2DModel"});
  r.expect("all_patch_size", {nlohmann::json::array({kZImagePatch})});
  r.expect("all_f_patch_size", {nlohmann::json::array({1})});
  c.channels = r.integer("in_channels", c.channels, 1, 4096);
  c.width = r.integer("dim", c.width, 2, kMostWidth);
  c.layers = r.integer("n_layers", c.layers, 1, kMostLayers);
  c.refiners = r.integer("n_refiner_layers", c.refiners, 1, kMostLayers);
  c.heads = r.integer("n_heads", c.heads, 1, c.width);
  if (c.width % c.heads) r.refuse("n_heads", "a divisor of dim " + std::to_string(c.width));
  r.expect("n_kv_heads", {c.heads});
  c.eps = r.number("norm_eps", c.eps, 0, 1);
  r.expect("qk_norm", {true});
  c.text_width = r.integer("cap_feat_dim", c.text_width, 1, kMostWidth);
  r.expect("siglip_feat_dim", {nullptr});
  c.theta = r.number("rope_theta", c.theta, 1, 1e12);
  c.time_scale = r.number("t_scale", c.time_scale, 1e-6, 1e6);
  const auto three = [&](const char* key, const std::array<int64_t, 3>& fallback, int64_t low, int64_t high) {
    const std::vector<int64_t> v = r.integers(key, {fallback.begin(), fallback.end()}, 3, low, high);
    return std::array<int64_t, 3>{v[0], v[1], v[2]};
  };
  c.axis_depths = three("axes_dims", c.axis_depths, 2, kMostWidth);
  c.axis_lengths = three("axes_lens", {1024, 512, 512}, 1, kMostPositions);
  const bool even = std::ranges::all_of(c.axis_depths, [](int64_t d) { return d % 2 == 0; });
  if (!even || std::accumulate(c.axis_depths.begin(), c.axis_depths.end(), int64_t{0}) != c.head_width())
    r.refuse("axes_dims", "even numbers that add up to a head's width " + std::to_string(c.head_width()));
  r.finish();
  return c;
}

}  // namespace tenon
