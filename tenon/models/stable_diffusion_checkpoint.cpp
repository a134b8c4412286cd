#include "tenon/models/stable_diffusion_checkpoint.h"

#include <algorithm>

#include "tenon/core/error.h"

namespace tenon {
namespace {
// What shows the architecture, and the words for it.
struct Evidence {
  Architecture architecture = Architecture::Unknown;
  std::string found;
};

const TensorView* find(const Component& c, const std::string& name) {
  const auto found = c.tensors.find(name);
  return found == c.tensors.end() ? nullptr : &found->second;
}

Evidence judge_unet(const Component& unet) {
  if (find(unet, "add_embedding.linear_1.weight"))
    return {Architecture::StableDiffusionXL, "a size embedding (add_embedding)"};
  for (const auto& [name, view] : unet.tensors) {
    if (!name.ends_with("attn2.to_k.weight") || view.shape.rank() != 2) continue;
    const std::string found = "cross-attention of width " + std::to_string(view.shape[1]);
    if (view.shape[1] == 1024) return {Architecture::StableDiffusion2, found};
    if (view.shape[1] == 2048) return {Architecture::StableDiffusionXL, found};
    break;
  }
  const TensorView* entry = find(unet, "conv_in.weight");
  if (!entry || entry->shape.rank() != 4) return {Architecture::Unknown, "a UNet without a convolution conv_in"};
  const int64_t channels = entry->shape[1];
  const std::string found = "a UNet with " + std::to_string(channels) + " input channels";
  if (channels == 9) return {Architecture::Inpainting, found};
  if (channels == 8) return {Architecture::InstructPix2Pix, found};
  if (channels == 4) return {Architecture::StableDiffusion1, found};
  return {Architecture::Unknown, found};
}

Evidence judge(const StableDiffusionCheckpoint& checkpoint, const std::optional<Architecture>& foreign) {
  if (foreign) return {*foreign, "tensor names of that family"};
  if (checkpoint.has("unet")) return judge_unet(checkpoint.component("unet"));
  if (checkpoint.has("text_encoder")) {
    const TensorView* table =
        find(checkpoint.component("text_encoder"), "text_model.embeddings.token_embedding.weight");
    if (table && table->shape.rank() == 2 && table->shape[1] == 1024)
      return {Architecture::StableDiffusion2, "a text encoder of width 1024"};
  }
  return {Architecture::Unknown, "no UNet"};
}
}  // namespace

std::string_view name_of(Architecture a) {
  switch (a) {
    case Architecture::StableDiffusion1:
      return "Stable Diffusion 1.x";
    case Architecture::Inpainting:
      return "Stable Diffusion inpainting";
    case Architecture::InstructPix2Pix:
      return "InstructPix2Pix";
    case Architecture::StableDiffusion2:
      return "Stable Diffusion 2.x";
    case Architecture::StableDiffusionXL:
      return "Stable Diffusion XL";
    case Architecture::Unknown:
      break;
  }
  return "unknown";
}

const Component& StableDiffusionCheckpoint::component(const std::string& name) const {
  const auto found = components_.find(name);
  if (found != components_.end()) return found->second;
  std::string present;
  for (const auto& [other, unused] : components_) present.append(present.empty() ? "" : ", ").append(other);
  throw Error(ErrorKind::Model, path_.string(),
              "has no " + name + " (it has: " + (present.empty() ? "nothing" : present) + ")");
}

Architecture StableDiffusionCheckpoint::architecture() const { return judge(*this, foreign_).architecture; }

void StableDiffusionCheckpoint::require_stable_diffusion_1() const {
  const Evidence e = judge(*this, foreign_);
  if (e.architecture == Architecture::StableDiffusion1) return;
  // Tensors that cannot be read may be what is missing.
  if (e.architecture == Architecture::Unknown && has("unet")) component("unet").require_readable();
  throw Error(ErrorKind::Model, path_.string(),
              "expected a Stable Diffusion 1.x model with a 4-channel UNet, found " + e.found +
                  (e.architecture == Architecture::Unknown
                       ? ""
                       : ": " + std::string(name_of(e.architecture)) + ", which is not supported"));
}

}  // namespace tenon
