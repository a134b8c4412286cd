#include "tenon/models/z_image.h"

#include <cmath>

#include "tenon/expr/ops.h"
#include "tenon/nn/diffusion.h"
#include "tenon/nn/linear.h"
#include "tenon/nn/norm.h"
#include "tenon/nn/rotary.h"

namespace tenon {
namespace {

constexpr int64_t kTimeWaves = 256, kTimeHidden = 1024;
constexpr double kFinalEps = 1e-6, kHeadEps = 1e-5;  // of norms that have their own; the others' is configured
constexpr const char* kPatchKind = "2-1";            // patch side in pixels and frames: part of two names

Expr count(Graph& g, int64_t n, const Shape& as) { return reshape(cast(iota(g, n), DType::F32), as); }

// The input of a sequence of blocks: tokens, their positions, and the number of keys per sequence (unset: all).
struct Stream {
  Expr x;  // [B',S,width]
  nn::Rotary positions;
  Expr keys;
  int64_t wanted = 0;  // rows needed after these blocks; 0: all
};

class ZImage {
 public:
  ZImage(const ZImageConfig& c, const ZImageInputs& in, nn::Precision p)
      : c_(c),
        in_(in),
        root_(in.latents.graph(), p),
        sequences_(in.text.shape()[0]),
        rows_(in.latents.shape()[2] / kZImagePatch),
        columns_(in.latents.shape()[3] / kZImagePatch),
        image_(padded_sequence(rows_ * columns_)),
        text_(in.text.shape()[1]),
        time_(embed_time()) {
    const Expr tokens = reshape(cast(in.text_tokens, DType::F32), {sequences_, 1});
    const auto unit = static_cast<double>(kZImageSequence);
    text_rows_ = in.equal_texts ? broadcast(constant(root_.graph(), static_cast<double>(text_)), {sequences_, 1})
                                : ceil(tokens / unit) * unit;
    is_text_ = less(count(root_.graph(), text_, {1, text_}), tokens);
  }

  Expr run() {
    const nn::Rotary all = positions();
    Stream image{embed_image(), part(all, 0, image_), {}};
    Stream text{embed_text(), part(all, image_, image_ + text_), keys(0)};
    for (int64_t i = 0; i < c_.refiners; ++i) image.x = block(root_ / "noise_refiner" / i, image, true);
    for (int64_t i = 0; i < c_.refiners; ++i) text.x = block(root_ / "context_refiner" / i, text, false);
    Stream both{store(concat({image.x, text.x}, 1)), all, keys(image_)};
    for (int64_t i = 0; i < c_.layers; ++i) {
      if (i + 1 == c_.layers) both.wanted = rows_ * columns_;  // text and padding rows are no longer needed
      both.x = block(root_ / "layers" / i, both, true);
    }
    return leave(both.x);
  }

 private:
  Expr store(const Expr& x) const { return cast(x, root_.act()); }
  nn::Scope block_of_patch(const char* name) const { return root_ / name / kPatchKind; }

  // ---- of rate schedule ----

  // The embedding of every time, [T, condition].
  Expr embed_time() const {
    const nn::Scope s = root_ / "t_embedder.mlp";
    const Expr waves = nn::sinusoid(in_.times * c_.time_scale, kTimeWaves);
    return nn::linear(s / 2, silu(nn::linear(s / 0, waves, kTimeHidden)), c_.condition());
  }

  // The rows of [T, width] that apply: that of the step's time, or each sequence's own.
  Expr now(const Expr& x) const { return in_.step ? gather(x, in_.step) : reshape(x, {sequences_, 1, x.shape()[-1]}); }

  // A block's modulation at this step: factors and gates [width] for attention, then for the feed-forward layers.
  std::array<Expr, 4> modulation(const nn::Scope& s) const {
    const Expr all = nn::linear(s / "adaLN_modulation.0", time_, 4 * c_.width);
    const auto quarter = [&](int64_t i) { return slice(all, -1, i * c_.width, (i + 1) * c_.width); };
    return {now(quarter(0) + 1.0), now(tanh(quarter(1))), now(quarter(2) + 1.0), now(tanh(quarter(3)))};
  }

  // ---- of rate prompt ----

  // Number of keys per sequence if `before` tokens precede its text; unset if all tokens are keys.
  Expr keys(int64_t before) const {
    if (in_.equal_texts) return {};
    return materialize(cast(reshape(text_rows_, {sequences_}) + static_cast<double>(before), DType::I32));
  }

  // Frame, row and column of the image's tokens, then of the text's: text tokens count frames from 1, the image is the
  // frame after them, and the image's padding is at the origin.
  nn::Rotary positions() const {
    Graph& g = root_.graph();
    const int64_t tokens = rows_ * columns_;
    const Shape grid{rows_, columns_}, image{sequences_, tokens}, text{sequences_, text_};
    const auto axis = [&](const Expr& of_image, const Expr& of_text) {
      return concat({pad(broadcast(of_image, image), {0, 0, 0, image_ - tokens}), broadcast(of_text, text)}, 1);
    };
    const auto flat = [&](const Expr& x) { return reshape(broadcast(x, grid), {1, tokens}); };
    const Expr none = constant(g, 0);
    const std::array<nn::RotaryAxis, 3> axes = {
        {{axis(text_rows_ + 1.0, count(g, text_, {1, text_}) + 1.0), c_.axis_depths[0]},
         {axis(flat(count(g, rows_, {rows_, 1})), none), c_.axis_depths[1]},
         {axis(flat(count(g, columns_, {1, columns_})), none), c_.axis_depths[2]}}};
    return nn::rotary(axes, c_.theta);
  }
  static nn::Rotary part(const nn::Rotary& r, int64_t begin, int64_t end) {
    return {slice(r.cos, 1, begin, end), slice(r.sin, 1, begin, end)};
  }

  Expr embed_text() const {
    const nn::Scope s = root_ / "cap_embedder";
    const Expr x = nn::linear(s / 1, nn::rms_norm(s / 0, in_.text, c_.eps), c_.width);
    return store(where(reshape(is_text_, {sequences_, text_, 1}), x, root_.small("cap_pad_token", {1, c_.width})));
  }

  // ---- the image ----

  // Tokens of the latents; elements of a token are ordered by row, column, channel.
  Expr embed_image() const {
    constexpr int64_t p = kZImagePatch;
    const Expr& x = in_.latents;
    const int64_t batch = x.shape()[0], tokens = rows_ * columns_;
    const Expr apart = permute(reshape(x, {batch, c_.channels, rows_, p, columns_, p}), {0, 2, 4, 3, 5, 1});
    const Expr patches = reshape(apart, {batch, tokens, p * p * c_.channels});
    Expr y = nn::linear(block_of_patch("all_x_embedder"), pad(patches, {0, 0, 0, image_ - tokens, 0, 0}), c_.width);
    if (image_ > tokens) {
      const Expr is_image = less(count(root_.graph(), image_, {image_, 1}), constant(root_.graph(), tokens));
      y = where(is_image, y, root_.small("x_pad_token", {1, c_.width}));
    }
    return store(sequences_ == batch ? y : concat({y, y}, 0));
  }

  Expr leave(const Expr& x) const {
    constexpr int64_t p = kZImagePatch;
    const nn::Scope s = block_of_patch("all_final_layer");
    const Expr scale = nn::linear(s / "adaLN_modulation.1", silu(time_), c_.width) + 1.0;
    const Expr image = slice(x, 1, 0, rows_ * columns_);
    const Expr y = nn::linear(s / "linear", nn::layer_norm(image, kFinalEps) * now(scale), p * p * c_.channels);
    const Expr apart = permute(reshape(y, {sequences_, rows_, columns_, p, p, c_.channels}), {0, 5, 1, 3, 2, 4});
    return reshape(apart, {sequences_, c_.channels, rows_ * p, columns_ * p});
  }

  // ---- blocks ----

  Expr block(const nn::Scope& s, const Stream& in, bool modulated) const {
    const std::array<Expr, 4> m = modulated ? modulation(s) : std::array<Expr, 4>();
    const auto times = [](const Expr& x, const Expr& factor) { return factor ? x * factor : x; };
    const auto entered = [&](const char* norm, const Expr& x, const Expr& factor) {
      return times(nn::rms_norm(s / norm, x, c_.eps), factor);
    };
    const auto left = [&](const char* norm, const Expr& x, const Expr& layer, const Expr& gate) {
      return store(x + times(nn::rms_norm(s / norm, store(layer), c_.eps), gate));
    };
    const Expr mixed = attend(s / "attention", entered("attention_norm1", in.x, m[0]), in);
    const Expr x = left("attention_norm2", wanted(in.x, in), mixed, m[1]);
    const Expr fed = feed_forward(s / "feed_forward", entered("ffn_norm1", x, m[2]));
    return left("ffn_norm2", x, fed, m[3]);
  }

  static Expr wanted(const Expr& x, const Stream& in) { return in.wanted ? slice(x, 1, 0, in.wanted) : x; }

  Expr attend(const nn::Scope& s, const Expr& x, const Stream& in) const {
    const int64_t w = c_.width;
    const Expr qkv = store(nn::packed_linear(s, x, {{"to_q", w}, {"to_k", w}, {"to_v", w}}, nn::Bias::No));
    const auto heads = [&](int64_t i) {
      return reshape(slice(qkv, -1, i * w, (i + 1) * w), {sequences_, x.shape()[1], c_.heads, c_.head_width()});
    };
    const auto by_head = [](const Expr& y) { return permute(y, {0, 2, 1, 3}); };
    const auto turned = [&](const char* norm, int64_t i) {
      return by_head(store(nn::rotate_neighbours(nn::rms_norm(s / norm, heads(i), kHeadEps), in.positions)));
    };
    const double scale = 1 / std::sqrt(static_cast<double>(c_.head_width()));
    const Expr mixed = attention(turned("norm_q", 0), turned("norm_k", 1), by_head(heads(2)), scale, false, in.keys);
    const Expr rows = wanted(reshape(by_head(store(mixed)), x.shape()), in);
    return nn::linear(s / "to_out.0", rows, w, nn::Bias::No);
  }

  Expr feed_forward(const nn::Scope& s, const Expr& x) const {
    const int64_t h = c_.hidden();
    const Expr both = store(nn::packed_linear(s, x, {{"w1", h}, {"w3", h}}, nn::Bias::No));
    const Expr gated = silu(slice(both, -1, 0, h)) * slice(both, -1, h, 2 * h);
    return nn::linear(s / "w2", store(gated), c_.width, nn::Bias::No);
  }

  const ZImageConfig& c_;
  const ZImageInputs& in_;
  nn::Scope root_;
  int64_t sequences_, rows_, columns_;  // of the image, in tokens
  int64_t image_, text_;                // tokens per sequence
  Expr time_;
  Expr text_rows_, is_text_;  // rows of each text after padding [B',1]; which rows belong to the text [B',S]
};

}  // namespace

ZImageInputs z_image_inputs(Graph& g, const ZImageConfig& c, const ZImageShape& s, nn::Precision p) {
  return {input(g, "latents", DType::F32, {s.batch, c.channels, s.height, s.width}, Rate::Step),
          input(g, "times", DType::F32, {s.timesteps}, Rate::Schedule),
          scalar(g, "step", DType::I32, Rate::Step),
          input(g, "text", p.act, {s.sequences(), s.tokens, c.text_width}, Rate::Prompt),
          input(g, "text_tokens", DType::I32, {s.sequences()}, Rate::Prompt),
          s.equal_texts};
}

Expr z_image(const ZImageConfig& c, const ZImageInputs& in, nn::Precision p) {
  const Shape &x = in.latents.shape(), &t = in.text.shape();
  const bool good = x.rank() == 4 && x[1] == c.channels && x.numel() > 0 && x[2] % kZImagePatch == 0 &&
                    x[3] % kZImagePatch == 0 && t.rank() == 3 && t[1] > 0 && t[1] % kZImageSequence == 0 &&
                    t[2] == c.text_width && (t[0] == x[0] || t[0] == 2 * x[0]) &&
                    in.text_tokens.shape() == Shape{t[0]} && in.times.shape().rank() == 1 && in.times.shape()[0] > 0 &&
                    (in.step || in.times.shape()[0] == t[0]);
  TENON_CHECK(Usage, good, "z_image") << "latents " << x.str() << ", text " << t.str() << " of "
                                      << in.text_tokens.shape().str() << " tokens, times " << in.times.shape().str()
                                      << " do not fit: expected [B," << c.channels << ",h,w] with even h and w, [B or "
                                      << "2B,S," << c.text_width << "] with S a multiple of " << kZImageSequence
                                      << ", a number for each text, [T]";
  return ZImage(c, in, p).run();
}

Expr z_image(Graph& g, const ZImageConfig& c, const ZImageShape& s, nn::Precision p) {
  return z_image(c, z_image_inputs(g, c, s, p), p);
}

WeightShapes z_image_weights(const ZImageConfig& c) {
  Graph g;  // two latents a side are one token, so that the sequence needs padding
  return weights_of(std::array{z_image(g, c, {.height = kZImagePatch, .width = kZImagePatch}, nn::kF32)});
}

}  // namespace tenon
