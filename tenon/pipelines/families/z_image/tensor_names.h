// Translates tensor names of Z-Image's single files (ComfyUI's layout, also used by GGUF files of architecture lumina2)
// into diffusers' names.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "tenon/io/gguf_checkpoint.h"

namespace tenon {

/// "model.diffusion_model.x_embedder.bias" -> "all_x_embedder.2-1.bias". Names already in diffusers' layout are
/// unchanged.
std::string z_image_name(std::string_view stored);

/// For a tensor that stacks the rows of queries, keys and values: the names of its three parts. Empty for any other
/// name.
std::optional<std::array<std::string, 3>> z_image_joined_names(std::string_view stored);

/// True for tensors in files that no network reads: "norm_final.weight", quantisation markers.
bool z_image_ignores(std::string_view stored);

/// The tensors of a GGUF file of architecture lumina2. Errors as gguf_checkpoint.
GgufCheckpoint lumina_checkpoint(const GgufFile& file);

}  // namespace tenon
