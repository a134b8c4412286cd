#include "tenon/pipelines/families/z_image/networks.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/pipelines/denoise.h"

namespace tenon {

Plan plan_text(const ZImageModel& model, int64_t texts, int64_t tokens, const NetworkOptions& options) {
  Graph g;
  const Expr ids = input(g, "tokens", DType::I32, {texts, tokens}, Rate::Prompt);
  const Expr hidden = decoder_states(model.text(), ids, model.text_layers(), options.precision);
  return plan_one("text_encoder", "hidden", hidden, options, z_image_text_e4m3_rows());
}

Plan plan_transformer(const ZImageModel& model, const ZImageShape& shape, const NetworkOptions& options) {
  Graph g;
  return plan_one("transformer", "direction", z_image(g, model.transformer(), shape, options.precision), options,
                  z_image_e4m3_rows());
}

Plan plan_vae_decode(const ZImageModel& model, int64_t batch, int64_t height, int64_t width,
                     const NetworkOptions& options) {
  Graph g;
  const int64_t factor = model.vae().downsampling();
  const Expr image = vae_decode(g, model.vae(), batch, height / factor, width / factor, options.precision);
  return plan_one("vae_decoder", "pixels", image, options, PrecisionPolicy());
}

Plan plan_vae_encode(const ZImageModel& model, int64_t batch, int64_t height, int64_t width,
                     const NetworkOptions& options) {
  Graph g;
  return plan_one("vae_encoder", "moments", vae_encode(g, model.vae(), batch, height, width, options.precision),
                  options, PrecisionPolicy());
}

PrecisionPolicy z_image_e4m3_rows() {
  return PrecisionPolicy::parse(
      "e4m3 rows, bf16: t_embedder, bf16: cap_embedder, bf16: x_embedder, bf16: refiner, bf16: adaLN, bf16: "
      "final_layer");
}

PrecisionPolicy z_image_text_e4m3_rows() { return PrecisionPolicy::parse("e4m3 rows"); }

std::vector<NamedNetwork> networks_of(const ZImageModel& model) {
  std::vector<NamedNetwork> out;
  for (const auto& [name, component] : {std::pair{"text_encoder", "text_encoder"},
                                        {"transformer", "transformer"},
                                        {"vae_decoder", "vae"},
                                        {"vae_encoder", "vae"}})
    if (model.has(component)) out.push_back({name, model.shapes(component)});
  return out;
}

void check_size(const ZImageModel& model, int64_t height, int64_t width) {
  const int64_t unit = model.size_unit();
  check_sides(height, width, unit);
  const auto& most = model.transformer().axis_lengths;
  TENON_CHECK(Usage, height / unit <= most[1], "height")
      << height << " is more than " << most[1] * unit << ", the largest that the model has positions for";
  TENON_CHECK(Usage, width / unit <= most[2], "width")
      << width << " is more than " << most[2] * unit << ", the largest that the model has positions for";
}

void check_text(const ZImageModel& model, int64_t tokens, const std::string& where) {
  const int64_t frames = model.transformer().axis_lengths[0];
  const int64_t rows = padded_sequence(tokens);
  TENON_CHECK(Usage, rows + 2 <= frames, where)  // the text's frames are 1 to rows, and the image's is the next one
      << "has " << tokens << " tokens with its template, " << rows << " with padding; the model's axes_lens " << frames
      << " allows " << std::max<int64_t>(0, frames - 2);
}

int64_t text_rows(int64_t tokens) {
  constexpr int64_t kStep = kZImageTextTokens / 4;
  return (tokens + kStep - 1) / kStep * kStep;
}

}  // namespace tenon
