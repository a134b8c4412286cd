#include "tenon/models/stable_diffusion_names.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace tenon {
namespace {
using Pair = std::pair<std::string_view, std::string_view>;

// A name read from the left, component by component.
struct Cursor {
  std::string_view rest;

  bool take(std::string_view prefix) {
    if (!rest.starts_with(prefix)) return false;
    rest.remove_prefix(prefix.size());
    return true;
  }
  // A number and the dot after it.
  std::optional<int> take_index() {
    int value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    const auto length = static_cast<size_t>(end - rest.data());
    if (error != std::errc() || value < 0 || length >= rest.size() || rest[length] != '.') return std::nullopt;
    rest.remove_prefix(length + 1);
    return value;
  }
  // If the rest begins with the left side of a pair, consumes it and returns the right side of the first such pair.
  template <size_t N>
  std::optional<std::string_view> translate(const std::array<Pair, N>& pairs) {
    for (const auto& [from, to] : pairs)
      if (take(from)) return to;
    return std::nullopt;
  }
};

std::string number(int value) { return std::to_string(value); }

constexpr std::array<Pair, 6> kUnetResnet = {{{"in_layers.0.", "norm1."},
                                              {"in_layers.2.", "conv1."},
                                              {"emb_layers.1.", "time_emb_proj."},
                                              {"out_layers.0.", "norm2."},
                                              {"out_layers.3.", "conv2."},
                                              {"skip_connection.", "conv_shortcut."}}};

std::string unet_resnet(const std::string& module, Cursor c) {
  const auto inner = c.translate(kUnetResnet);
  return inner ? module + std::string(*inner) + std::string(c.rest) : "";
}

// Down path: module 0 is conv_in; then per level two ResBlocks (with attention) and one downsampler.
std::string unet_input_block(Cursor c) {
  const auto block = c.take_index();
  if (!block) return "";
  if (*block == 0) return c.take("0.") ? "conv_in." + std::string(c.rest) : "";
  const int level = (*block - 1) / 3, place = (*block - 1) % 3;
  const std::string head = "down_blocks." + number(level) + ".";
  if (place == 2) return c.take("0.op.") ? head + "downsamplers.0.conv." + std::string(c.rest) : "";
  if (c.take("0.")) return unet_resnet(head + "resnets." + number(place) + ".", c);
  if (c.take("1.")) return head + "attentions." + number(place) + "." + std::string(c.rest);
  return "";
}

// Up path: three ResBlocks (with attention) per level; the list of the last one may end in an upsampler.
std::string unet_output_block(Cursor c) {
  const auto block = c.take_index();
  if (!block) return "";
  const int level = *block / 3, place = *block % 3;
  const std::string head = "up_blocks." + number(level) + ".";
  if (c.take("0.")) return unet_resnet(head + "resnets." + number(place) + ".", c);
  if (place == 2 && (c.take("1.conv.") || c.take("2.conv."))) return head + "upsamplers.0.conv." + std::string(c.rest);
  if (c.take("1.")) return head + "attentions." + number(place) + "." + std::string(c.rest);
  return "";
}

constexpr std::array<Pair, 4> kUnetEnds = {{{"time_embed.0.", "time_embedding.linear_1."},
                                            {"time_embed.2.", "time_embedding.linear_2."},
                                            {"out.0.", "conv_norm_out."},
                                            {"out.2.", "conv_out."}}};

constexpr std::array<Pair, 5> kVaeAttention = {
    {{"q.", "to_q."}, {"k.", "to_k."}, {"v.", "to_v."}, {"proj_out.", "to_out.0."}, {"norm.", "group_norm."}}};
constexpr std::array<Pair, 4> kVaeOldAttention = {
    {{"query.", "to_q."}, {"key.", "to_k."}, {"value.", "to_v."}, {"proj_attn.", "to_out.0."}}};

std::string vae_resnet(const std::string& module, Cursor c) {
  const char* inner = c.take("nin_shortcut.") ? "conv_shortcut." : "";
  return module + inner + std::string(c.rest);
}

// "block.1.conv1.weight" and the resampler of one level.
std::string vae_level(const std::string& head, Cursor c) {
  if (c.take("block.")) {
    const auto resnet = c.take_index();
    return resnet ? vae_resnet(head + "resnets." + number(*resnet) + ".", c) : "";
  }
  if (c.take("downsample.conv.")) return head + "downsamplers.0.conv." + std::string(c.rest);
  if (c.take("upsample.conv.")) return head + "upsamplers.0.conv." + std::string(c.rest);
  return "";
}

std::string vae_half(const std::string& head, Cursor c, int levels) {
  if (c.take("mid.block_1.")) return vae_resnet(head + "mid_block.resnets.0.", c);
  if (c.take("mid.block_2.")) return vae_resnet(head + "mid_block.resnets.1.", c);
  if (c.take("mid.attn_1.")) {
    const auto inner = c.translate(kVaeAttention);
    return inner ? head + "mid_block.attentions.0." + std::string(*inner) + std::string(c.rest) : "";
  }
  if (c.take("norm_out.")) return head + "conv_norm_out." + std::string(c.rest);
  if (c.rest.starts_with("conv_in.") || c.rest.starts_with("conv_out.")) return head + std::string(c.rest);
  const bool down = c.take("down."), up = !down && c.take("up.");
  const auto level = down || up ? c.take_index() : std::nullopt;
  if (!level || *level >= levels) return "";
  return down ? vae_level(head + "down_blocks." + number(*level) + ".", c)
              : vae_level(head + "up_blocks." + number(levels - 1 - *level) + ".", c);
}

}  // namespace

std::string unet_name_from_ldm(std::string_view name) {
  Cursor c{name};
  if (c.take("input_blocks.")) return unet_input_block(c);
  if (c.take("output_blocks.")) return unet_output_block(c);
  if (c.take("middle_block.0.")) return unet_resnet("mid_block.resnets.0.", c);
  if (c.take("middle_block.1.")) return "mid_block.attentions.0." + std::string(c.rest);
  if (c.take("middle_block.2.")) return unet_resnet("mid_block.resnets.1.", c);
  const auto end = c.translate(kUnetEnds);
  return end ? std::string(*end) + std::string(c.rest) : "";
}

std::string vae_name_from_ldm(std::string_view name, int levels) {
  Cursor c{name};
  if (name.starts_with("quant_conv.") || name.starts_with("post_quant_conv.")) return std::string(name);
  if (c.take("encoder.")) return vae_half("encoder.", c, levels);
  if (c.take("decoder.")) return vae_half("decoder.", c, levels);
  return "";
}

std::string vae_name_from_old(std::string_view name) {
  constexpr std::string_view kModule = ".mid_block.attentions.0.";
  const size_t at = name.find(kModule);
  if (at == std::string_view::npos) return std::string(name);
  const size_t end = at + kModule.size();
  Cursor c{name.substr(end)};
  const auto inner = c.translate(kVaeOldAttention);
  return inner ? std::string(name.substr(0, end)) + std::string(*inner) + std::string(c.rest) : std::string(name);
}

std::string text_name_with_prefix(std::string_view name) {
  const bool inner =
      name.starts_with("embeddings.") || name.starts_with("encoder.") || name.starts_with("final_layer_norm.");
  return (inner ? "text_model." : "") + std::string(name);
}

}  // namespace tenon
