// Stable Diffusion 1.5, and a miniature of it with every kind of block, for tests.
#include "tenon/models/registry.h"

namespace tenon {
namespace {

StableDiffusionConfig tiny() {
  StableDiffusionConfig c;
  c.text = {.hidden = 24, .mlp = 64, .layers = 3, .heads = 3};
  c.unet.levels = {{32, 2}, {64, 2}, {96, 2}, {96, 2, false, false}};
  c.unet.context_dim = 24;
  c.unet.time_dim = 128;
  c.vae.channels = {32, 64, 96, 96};
  return c;
}

const RegisterModel kSd15({"sd15", "Stable Diffusion 1.5: 860 M + 123 M + 84 M parameters", {}});
const RegisterModel kTiny({"tiny", "Stable Diffusion 1.5 with 24 to 96 channels", tiny()});

}  // namespace
}  // namespace tenon
