// Tensor names of Z-Image's single files (ComfyUI's layout, which GGUF files of architecture lumina2 have too), as
// diffusers has them.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace tenon {

/// "model.diffusion_model.x_embedder.bias" -> "all_x_embedder.2-1.bias". Names of diffusers' layout stay as they are.
std::string z_image_name(std::string_view stored);

/// What the thirds of a tensor are called that holds queries', keys' and values' rows one below the other; nothing for
/// any other name.
std::optional<std::array<std::string, 3>> z_image_joined_names(std::string_view stored);

/// True for what files hold although no network reads it: "norm_final.weight", marks of their quantisation.
bool z_image_ignores(std::string_view stored);

}  // namespace tenon
