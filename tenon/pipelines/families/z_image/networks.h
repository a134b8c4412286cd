// The networks of a Z-Image model as plans: from a configuration and a size to what a backend runs.
#pragma once
#include "tenon/pipelines/families/z_image/model.h"
#include "tenon/pipelines/networks.h"

namespace tenon {

/// Input "tokens" i32 [texts, tokens]; result "hidden" [texts, tokens, width], as the transformer reads it.
Plan plan_text(const ZImageModel& model, int64_t texts, int64_t tokens, const NetworkOptions& options);
/// Inputs as models/z_image.h; the result, picture minus noise, is named "direction".
Plan plan_transformer(const ZImageModel& model, const ZImageShape& shape, const NetworkOptions& options);
/// Sizes in pixels. Input "latents"; result "pixels" f32 [B,H,W,3] in [0,1].
Plan plan_vae_decode(const ZImageModel& model, int64_t batch, int64_t height, int64_t width,
                     const NetworkOptions& options);
/// Input "image" f32 [B,H,W,3] in [-1,1]; result "moments".
Plan plan_vae_encode(const ZImageModel& model, int64_t batch, int64_t height, int64_t width,
                     const NetworkOptions& options);

/// What e4m3 means for the transformer: linear layers of the main blocks in e4m3, rows quantised; what does
/// not bear that stays in bf16: embedders, refiners, modulation, the final layer. The VAE stays as it is.
PrecisionPolicy z_image_e4m3_rows();
/// The same for the text encoder: all its linear layers; its vocabulary, which is looked up, stays in bf16.
PrecisionPolicy z_image_text_e4m3_rows();

/// Networks of what the model has, by the names of their plans.
std::vector<NamedNetwork> networks_of(const ZImageModel& model);

/// Throws Error(Usage) unless height and width are positive multiples of the model's unit and no longer than it was
/// trained to place tokens; names the nearest valid size.
void check_size(const ZImageModel& model, int64_t height, int64_t width);

/// Rows that the networks have for a text of so many tokens, 1..kZImageTextTokens: one of four sizes, so that a prompt
/// of another length needs no other plan. What lies behind the text's own multiple of kZImageSequence is masked.
int64_t text_rows(int64_t tokens);

}  // namespace tenon
