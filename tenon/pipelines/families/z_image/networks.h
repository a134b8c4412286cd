// Plans of a Z-Image model's networks, for given sizes.
#pragma once
#include "tenon/pipelines/families/z_image/model.h"
#include "tenon/pipelines/networks.h"

namespace tenon {

/// Input "tokens" i32 [texts, tokens]; result "hidden" [texts, tokens, width], in the form that the transformer reads.
Plan plan_text(const ZImageModel& model, int64_t texts, int64_t tokens, const NetworkOptions& options);
/// Inputs as in models/z_image.h; the result, picture minus noise, is named "direction".
Plan plan_transformer(const ZImageModel& model, const ZImageShape& shape, const NetworkOptions& options);
/// Sizes in pixels. Input "latents"; result "pixels" f32 [B,H,W,3] in [0,1].
Plan plan_vae_decode(const ZImageModel& model, int64_t batch, int64_t height, int64_t width,
                     const NetworkOptions& options);
/// Input "image" f32 [B,H,W,3] in [-1,1]; result "moments".
Plan plan_vae_encode(const ZImageModel& model, int64_t batch, int64_t height, int64_t width,
                     const NetworkOptions& options);

/// What `e4m3 rows` means for the transformer: linear layers of the main blocks in e4m3 with quantised rows. Layers
/// that do not tolerate it stay in bf16: embedders, refiners, modulation, the final layer. The VAE is unchanged.
PrecisionPolicy z_image_e4m3_rows();
/// The same for the text encoder: all its linear layers; the embedding table stays in bf16.
PrecisionPolicy z_image_text_e4m3_rows();

/// The networks of the parts that the model has, by the names of their plans.
std::vector<NamedNetwork> networks_of(const ZImageModel& model);

/// Throws Error(Usage), naming the nearest valid size, unless height and width are positive multiples of the model's
/// unit and within the positions it was trained on.
void check_size(const ZImageModel& model, int64_t height, int64_t width);
/// Throws Error(Usage) if a text of so many tokens leaves no position for the image behind it; `where` names the text.
void check_text(const ZImageModel& model, int64_t tokens, const std::string& where);

/// Number of rows that the networks use for a text of so many tokens, 1..kZImageTextTokens: one of four sizes, so that
/// few prompts need another plan. Rows beyond the text's own multiple of kZImageSequence are masked.
int64_t text_rows(int64_t tokens);

}  // namespace tenon
