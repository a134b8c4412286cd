#include "tenon/pipelines/networks.h"

#include "tenon/core/error.h"
#include "tenon/io/image.h"

namespace tenon {

Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options) {
  PlanOptions o;
  o.name = name;
  o.fusion = options.fusion;
  o.fold_scales = options.fold_scales;
  o.anchors_alone = options.anchors_alone;
  o.target = options.target;
  return make_plan(std::array{Result{result, value}}, o);
}

Plan plan_text(const Model& model, int64_t texts, const NetworkOptions& options, int64_t clip_skip) {
  Graph g;
  const ClipTextConfig& c = model.config().text;
  return plan_one("text_encoder", "hidden", clip_text(g, c, texts, c.positions, options.precision, clip_skip), options);
}

Plan plan_unet(const Model& model, const GenerationShape& shape, const NetworkOptions& options) {
  const int64_t factor = model.config().vae.downsampling();
  UNetShape s;
  s.batch = shape.batch;
  s.guided = shape.guided;
  s.height = shape.height / factor;
  s.width = shape.width / factor;
  s.tokens = shape.tokens;
  s.timesteps = shape.timesteps;
  Graph g;
  return plan_one("unet", "noise", unet(g, model.config().unet, s, options.precision), options);
}

Plan plan_vae_decode(const Model& model, const GenerationShape& shape, const NetworkOptions& options) {
  Graph g;
  const VaeConfig& c = model.config().vae;
  const int64_t factor = c.downsampling();
  const Expr image = vae_decode(g, c, shape.batch, shape.height / factor, shape.width / factor, options.precision);
  return plan_one("vae_decoder", "pixels", image, options);
}

Plan plan_vae_encode(const Model& model, const GenerationShape& shape, const NetworkOptions& options) {
  Graph g;
  const Expr moments = vae_encode(g, model.config().vae, shape.batch, shape.height, shape.width, options.precision);
  return plan_one("vae_encoder", "moments", moments, options);
}

void check_size(const Model& model, int64_t height, int64_t width) {
  const int64_t factor = model.config().vae.downsampling();
  for (const auto& [what, size] : {std::pair<const char*, int64_t>{"height", height}, {"width", width}}) {
    TENON_CHECK(Usage, size > 0 && size <= kMaxImageSide, what)
        << size << " is outside " << factor << ".." << kMaxImageSide;
    const int64_t nearest = std::max<int64_t>((size + factor / 2) / factor * factor, factor);
    TENON_CHECK(Usage, size % factor == 0, what)
        << size << " is not a multiple of " << factor << "; the nearest is " << nearest;
  }
}

}  // namespace tenon
