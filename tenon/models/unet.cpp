#include "tenon/models/unet.h"

#include "tenon/expr/ops.h"
#include "tenon/nn/attention.h"
#include "tenon/nn/diffusion.h"
#include "tenon/nn/linear.h"

namespace tenon {
namespace {

// The epsilons of transformer blocks' entry norm and layer norms are fixed, independent of norm_eps.
constexpr double kEntryEps = 1e-6, kTokenEps = 1e-5;

class UNet {
 public:
  UNet(const UNetConfig& c, const UNetInputs& in, nn::Precision p)
      : c_(c), in_(in), root_(in.latents.graph(), p), norm_{c.norm_groups, c.norm_eps}, time_{embed_time(), in.step} {}

  Expr run() {
    Expr x = permute(in_.latents, {0, 2, 3, 1});
    if (in_.context.shape()[0] == 2 * x.shape()[0]) x = concat({x, x}, 0);
    Expr h = store(nn::conv3x3(root_ / "conv_in", x, c_.levels[0].channels));
    skips_.push_back(h);
    const size_t levels = c_.levels.size();
    for (size_t i = 0; i < levels; ++i) h = down(root_ / "down_blocks" / static_cast<int64_t>(i), i, h);
    h = middle(root_ / "mid_block", h);
    for (size_t i = 0; i < levels; ++i) h = up(root_ / "up_blocks" / static_cast<int64_t>(i), levels - 1 - i, h);
    h = silu(nn::group_norm(root_ / "conv_norm_out", h, norm_));
    return permute(nn::conv3x3(root_ / "conv_out", h, c_.out_channels), {0, 3, 1, 2});
  }

 private:
  Expr store(const Expr& x) const { return cast(x, root_.act()); }

  // silu of the time embedding for every timestep of the schedule, [T, time_dim].
  Expr embed_time() const {
    const nn::Scope s = root_ / "time_embedding";
    const Expr waves = nn::sinusoid(in_.timesteps, c_.levels[0].channels, c_.freq_shift, c_.sin_first);
    return silu(nn::linear(s / "linear_2", silu(nn::linear(s / "linear_1", waves, c_.time_dim)), c_.time_dim));
  }

  Expr residual(const nn::Scope& s, const Expr& x, int64_t outputs) const {
    return nn::residual_block(s, x, outputs, norm_, &time_);
  }

  Expr attend(const nn::Scope& s, const Expr& y, const Expr& context, int64_t heads, const Expr& residual_of) const {
    const int64_t channels = y.shape()[-1];
    const auto project = [&](const char* name, const Expr& x) {
      return nn::linear(s / name, x, channels, nn::Bias::No);
    };
    const Expr mixed =
        nn::attention(project("to_q", y), project("to_k", context), project("to_v", context), heads, s.act());
    return store(nn::linear(s / "to_out.0", mixed, channels) + residual_of);
  }

  // Self-attention, cross-attention to the text and a gated feed-forward over the pixels of x.
  Expr transformer(const nn::Scope& s, const Expr& x, int64_t heads) const {
    const int64_t channels = x.shape()[-1];
    const Expr entry = nn::group_norm(s / "norm", x, {c_.norm_groups, kEntryEps});
    Expr h = nn::tokens_of_image(store(nn::conv2d(s / "proj_in", entry, channels, 1)));
    const nn::Scope b = s / "transformer_blocks.0";
    const Expr y = nn::layer_norm(b / "norm1", h, kTokenEps);
    h = attend(b / "attn1", y, y, heads, h);
    h = attend(b / "attn2", nn::layer_norm(b / "norm2", h, kTokenEps), in_.context, heads, h);
    const Expr both = nn::linear(b / "ff.net.0.proj", nn::layer_norm(b / "norm3", h, kTokenEps), 8 * channels);
    const Expr gated = store(slice(both, -1, 0, 4 * channels) * gelu(slice(both, -1, 4 * channels, 8 * channels)));
    h = store(nn::linear(b / "ff.net.2", gated, channels) + h);
    return store(nn::conv2d(s / "proj_out", reshape(h, x.shape()), channels, 1) + x);
  }

  Expr down(const nn::Scope& s, size_t level, Expr h) {
    const UNetConfig::Level& l = c_.levels[level];
    for (int64_t i = 0; i < c_.layers_per_block; ++i) {
      h = residual(s / "resnets" / i, h, l.channels);
      if (l.down_attention) h = transformer(s / "attentions" / i, h, l.heads);
      skips_.push_back(h);
    }
    if (level + 1 == c_.levels.size()) return h;
    h = store(nn::conv2d(s / "downsamplers.0.conv", h, l.channels, 3, 2, nn::Pads::all(1)));
    skips_.push_back(h);
    return h;
  }

  Expr middle(const nn::Scope& s, Expr h) const {
    const UNetConfig::Level& l = c_.levels.back();
    h = residual(s / "resnets.0", h, l.channels);
    h = transformer(s / "attentions.0", h, l.heads);
    return residual(s / "resnets.1", h, l.channels);
  }

  Expr up(const nn::Scope& s, size_t level, Expr h) {
    const UNetConfig::Level& l = c_.levels[level];
    for (int64_t i = 0; i <= c_.layers_per_block; ++i) {
      h = residual(s / "resnets" / i, concat({h, skips_.back()}, -1), l.channels);
      skips_.pop_back();
      if (l.up_attention) h = transformer(s / "attentions" / i, h, l.heads);
    }
    if (level == 0) return h;
    // Twice the size, or one less if the down path halved an odd size.
    const Shape& target = skips_.back().shape();
    const Expr larger = resize_nearest(h, target[1], target[2]);
    return store(nn::conv3x3(s / "upsamplers.0.conv", larger, l.channels));
  }

  const UNetConfig& c_;
  const UNetInputs& in_;
  nn::Scope root_;
  nn::GroupNorm norm_;
  nn::TimeSignal time_;
  std::vector<Expr> skips_;
};

}  // namespace

UNetInputs unet_inputs(Graph& g, const UNetConfig& c, const UNetShape& s, nn::Precision p) {
  return {input(g, "latents", DType::F32, {s.batch, c.in_channels, s.height, s.width}, Rate::Step),
          input(g, "timesteps", DType::F32, {s.timesteps}, Rate::Schedule), scalar(g, "step", DType::I32, Rate::Step),
          input(g, "context", p.act, {s.model_batch(), s.tokens, c.context_dim}, Rate::Prompt)};
}

Expr unet(const UNetConfig& c, const UNetInputs& in, nn::Precision p) {
  const Shape &x = in.latents.shape(), &t = in.context.shape();
  const bool good = x.rank() == 4 && x[1] == c.in_channels && x.numel() > 0 && t.rank() == 3 && t[1] > 0 &&
                    t[2] == c.context_dim && (t[0] == x[0] || t[0] == 2 * x[0]) && in.timesteps.shape().rank() == 1 &&
                    in.timesteps.shape()[0] > 0 && (in.step || in.timesteps.shape()[0] == t[0]);
  TENON_CHECK(Usage, good, "unet") << "latents " << x.str() << ", context " << t.str() << ", timesteps "
                                   << in.timesteps.shape().str() << " do not fit: expected [B," << c.in_channels
                                   << ",h,w], [B or 2B,S," << c.context_dim << "], [T]";
  return UNet(c, in, p).run();
}

Expr unet(Graph& g, const UNetConfig& c, const UNetShape& s, nn::Precision p) {
  return unet(c, unet_inputs(g, c, s, p), p);
}

WeightShapes unet_weights(const UNetConfig& c) {
  Graph g;
  return weights_of(std::array{unet(g, c, {.height = 1, .width = 1, .tokens = 1}, nn::kF32)});
}

}  // namespace tenon
