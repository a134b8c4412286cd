#include "tenon/models/vit.h"

#include "tenon/expr/ops.h"
#include "tenon/nn/attention.h"
#include "tenon/nn/linear.h"
#include "tenon/nn/norm.h"

namespace tenon {
namespace {

// K of a product is padded to a multiple of this many elements, so that each row begins on a 16-byte boundary.
constexpr int64_t kRowElements = 16;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

Expr self_attention(const nn::Scope& s, const VitConfig& c, const Expr& x) {
  const Expr qkv =
      cast(c.split_qkv ? nn::packed_linear(s, x, {{"query", c.width}, {"key", c.width}, {"value", c.width}})
                       : nn::linear(s / "qkv", x, 3 * c.width),
           s.act());
  const auto third = [&](int64_t i) { return slice(qkv, -1, i * c.width, (i + 1) * c.width); };
  return nn::linear(s / "proj", nn::attention(third(0), third(1), third(2), c.heads, s.act()), c.width);
}

Expr feed_forward(const nn::Scope& s, const VitConfig& c, const Expr& x) {
  Expr h;
  if (c.gated) {
    const Expr both = c.split_gate ? nn::packed_linear(s, x, {{"gate", c.hidden}, {"up", c.hidden}})
                                   : nn::linear(s / "fc1", x, 2 * c.hidden);
    h = silu(slice(both, -1, 0, c.hidden)) * slice(both, -1, c.hidden, 2 * c.hidden);
  } else {
    h = gelu(nn::linear(s / "fc1", x, c.hidden));
  }
  return nn::linear(s / "fc2", cast(h, s.act()), c.width);
}

Expr block(const nn::Scope& s, const VitConfig& c, const Expr& input) {
  const auto branch = [&](const char* scale, const Expr& y) {
    return c.layer_scale ? y * (s / scale).small("gamma", {c.width}) : y;
  };
  const Expr mixed = self_attention(s / "attn", c, nn::layer_norm(s / "norm1", input, c.eps));
  const Expr x = cast(branch("ls1", mixed) + input, s.act());
  const Expr out = feed_forward(s / "mlp", c, nn::layer_norm(s / "norm2", x, c.eps));
  return cast(branch("ls2", out) + x, s.act());
}

// The constant part of every token before the first block, f32 [prefix + patches, width]: token, position, bias.
Expr token_table(const nn::Scope& s, const VitConfig& c, const Expr& bias, int64_t height, int64_t width) {
  const int64_t cells = c.grid * c.grid, first = c.class_position ? 1 : 0;
  const Expr table = reshape(s.small("pos_embed", {1, first + cells, c.width}), {first + cells, c.width});
  Expr token = reshape(s.small("cls_token", {1, 1, c.width}), {1, c.width});
  if (c.class_position) token = token + slice(table, 0, 0, 1);
  std::vector<Expr> rows{token};
  if (c.registers) rows.push_back(reshape(s.small("reg_token", {1, c.registers, c.width}), {c.registers, c.width}));
  rows.push_back(resample_positions(slice(table, 0, first, first + cells), c.grid, height, width, c.resample) + bias);
  return concat(rows, 0);
}

// The patch embedding as one product over all tokens: tokens without a patch multiply zeros, and adding the table
// completes every token, so that nothing needs to be concatenated.
Expr embed_patches(const nn::Scope& s, const VitConfig& c, const Expr& pixels) {
  const Shape& shape = pixels.shape();
  const int64_t p = c.patch, k = 3 * p * p, gh = shape[1] / p, gw = shape[2] / p, more = round_up(k, kRowElements) - k;
  const Expr apart = permute(reshape(pixels, {shape[0], gh, p, gw, p, 3}), {0, 1, 3, 2, 4, 5});
  const Expr patches = pad(reshape(apart, {shape[0], gh * gw, k}), {0, 0, c.prefix(), 0, 0, more});
  const Expr filter = permute((s / "patch_embed.proj").weight("weight", {c.width, 3, p, p}), {0, 2, 3, 1});
  const Expr weight = pad(reshape(filter, {c.width, k}), {0, 0, 0, more});
  const Expr bias = (s / "patch_embed.proj").small("bias", {c.width});
  return cast(nn::linear(patches, weight) + token_table(s, c, bias, gh, gw), s.act());
}

VitConfig sized(int64_t width, int64_t depth, bool gated, int64_t registers) {
  VitConfig c;
  c.width = width;
  c.depth = depth;
  c.heads = width / 64;
  c.hidden = gated ? width * 8 / 3 : 4 * width;
  c.gated = gated;
  c.registers = registers;
  c.class_position = registers == 0;  // timm's checkpoints with registers have already added it
  return c;
}

}  // namespace

const std::vector<VitPreset>& vit_presets() {
  static const std::vector<VitPreset> all = [] {
    std::vector<VitPreset> out;
    for (const int64_t registers : {0, 4}) {
      const auto add = [&](const char* letter, const char* parameters, int64_t width, int64_t depth, bool gated) {
        const std::string suffix = registers ? "-reg" : "";
        out.push_back({std::string("vit-") + letter + "14" + suffix,
                       std::string("DINOv2 ViT-") + letter + "/14" + (registers ? " with 4 registers" : "") + ": " +
                           parameters + " parameters",
                       sized(width, depth, gated, registers)});
      };
      add("s", "22 M", 384, 12, false);
      add("b", "87 M", 768, 12, false);
      add("l", "304 M", 1024, 24, false);
      add("g", "1136 M", 1536, 40, true);
    }
    return out;
  }();
  return all;
}

Expr vit(const VitConfig& c, const Expr& pixels, nn::Precision p) {
  const Shape& shape = pixels.shape();
  TENON_CHECK(Usage,
              shape.rank() == 4 && shape[3] == 3 && shape[1] >= c.patch && shape[2] >= c.patch &&
                  shape[1] % c.patch == 0 && shape[2] % c.patch == 0,
              "vit")
      << "expected pixels [B,H,W,3] with H and W multiples of " << c.patch << ", got " << shape.str();
  const nn::Scope s(pixels.graph(), p);
  Expr x = embed_patches(s, c, pixels);
  for (int64_t i = 0; i < c.depth; ++i) x = block(s / "blocks" / i, c, x);
  return nn::layer_norm(s / "norm", x, c.eps);
}

Expr vit(Graph& g, const VitConfig& c, int64_t batch, int64_t height, int64_t width, nn::Precision p) {
  return vit(c, input(g, "pixels", DType::F32, {batch, height, width, 3}), p);
}

WeightShapes vit_weights(const VitConfig& c) {
  Graph g;
  return weights_of(std::array{vit(g, c, 1, c.patch, c.patch, nn::kF32)});
}

// ---- positions ----------------------------------------------------------------------------------------------------

namespace {

// Keys' cubic convolution kernel at |x|.
Expr cubic(const Expr& x, double a) {
  Graph& g = x.graph();
  const Expr d = abs(x);
  const Expr inner = ((a + 2) * d - (a + 3)) * d * d + 1.0;
  const Expr outer = (((a * d) - 5 * a) * d + 8 * a) * d - 4 * a;
  return where(less(d, constant(g, 1)), inner, where(less(d, constant(g, 2)), outer, constant(g, 0)));
}

}  // namespace

Expr resample_matrix(Graph& g, int64_t from, int64_t to, VitResample how) {
  constexpr double kAntialiased = -0.5, kPlain = -0.75, kOffset = 0.1;
  const auto count = [&](int64_t n, const Shape& shape) { return reshape(cast(iota(g, n), DType::F32), shape); };
  const Expr i = count(to, {to, 1}), j = count(from, {1, from});
  const double target = static_cast<double>(to) + (how == VitResample::PlainOffset ? kOffset : 0);
  const double scale = static_cast<double>(from) / target;
  if (how == VitResample::Antialias) {
    const Expr weights = cubic((j + 0.5 - (i + 0.5) * scale) / std::max(scale, 1.0), kAntialiased);
    return weights / sum(weights);
  }
  // Taps beyond either end read the last sample there.
  const Expr at = (i + 0.5) * scale - 0.5;
  const auto tap = [&](double sample) { return cubic(at - sample, kPlain); };
  const double last = static_cast<double>(from - 1);
  const auto beyond = [&](double end, double step) {
    return where(equal(j, constant(g, end)), tap(end + step) + tap(end + 2 * step), constant(g, 0));
  };
  return cubic(at - j, kPlain) + beyond(0, -1) + beyond(last, 1);
}

Expr resample_positions(const Expr& table, int64_t grid, int64_t height, int64_t width, VitResample how) {
  if (height == grid && width == grid) return table;
  Graph& g = table.graph();
  const int64_t channels = table.shape()[1];
  const Expr rows = permute(reshape(table, {grid, grid, channels}), {0, 2, 1});
  const Expr wide = linear(rows, resample_matrix(g, grid, width, how));                       // [y, channel, x']
  const Expr tall = linear(permute(wide, {2, 1, 0}), resample_matrix(g, grid, height, how));  // [x', channel, y']
  return reshape(permute(tall, {2, 0, 1}), {height * width, channels});
}

}  // namespace tenon
