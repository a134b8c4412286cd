// Translates tensor names from the layouts of checkpoints to diffusers' names, which the models here use.
#pragma once
#include <string>
#include <string_view>

namespace tenon {

/// Name of a UNet tensor of the single-file (LDM) layout, without "model.diffusion_model.", in diffusers' layout:
/// "input_blocks.1.0.in_layers.0.weight" -> "down_blocks.0.resnets.0.norm1.weight". Empty if there is no counterpart.
/// For UNets with two ResBlocks per level, as every Stable Diffusion has.
std::string unet_name_from_ldm(std::string_view name);

/// The same for the VAE, without "first_stage_model.": "decoder.up.3.block.0.conv1.weight" ->
/// "decoder.up_blocks.0.resnets.0.conv1.weight". `levels` is the number of resolutions (4), because this layout counts
/// the decoder's levels from the output.
std::string vae_name_from_ldm(std::string_view name, int levels);

/// A VAE name of diffusers' layout with the mid-block attention's old names replaced ("query" -> "to_q", "proj_attn" ->
/// "to_out.0").
std::string vae_name_from_old(std::string_view name);

/// A text-encoder name with the leading "text_model.", which newer exports omit.
std::string text_name_with_prefix(std::string_view name);

}  // namespace tenon
