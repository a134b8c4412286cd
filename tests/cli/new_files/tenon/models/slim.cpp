// Stable Diffusion with one narrow block at each of three sizes.
#include "tenon/models/registry.h"

namespace tenon {
namespace {

StableDiffusionConfig slim() {
  StableDiffusionConfig c;
  c.text = {.hidden = 16, .mlp = 32, .layers = 2, .heads = 2};
  c.unet.levels = {{32, 1}, {32, 1}, {64, 1, false, false}};
  c.unet.context_dim = 16;
  c.unet.time_dim = 64;
  c.vae.channels = {32, 32, 64, 64};
  return c;
}

const RegisterModel kSlim({"slim", "Stable Diffusion with 16 to 64 channels", slim()});

}  // namespace
}  // namespace tenon
