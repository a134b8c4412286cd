#include "tenon/pipelines/families/z_image/generator.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/io/prompt_weights.h"
#include "tenon/pipelines/denoise.h"
#include "tenon/pipelines/families/z_image/guidance.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {
ZImageGenerator::ZImageGenerator(std::shared_ptr<const ZImageModel> model, const PipelineOptions& options)
    : model_(std::move(model)),
      backend_(make_backend(options.device, {.threads = options.threads, .batch_invariant = options.batch_invariant})),
      lora_folder_(options.lora_folder),
      batch_invariant_(options.batch_invariant),
      loras_([this] { return model_->lora_names(); }, options),
      kept_(
          backend_, [this](const std::string& component) { return loras_.over(component, model_->weights(component)); },
          options) {
  model_->require_all();
  const NetworkType type = options.type.value_or(backend_->types().front());
  check_type(*backend_, type.stored, "type");
  TENON_CHECK(Usage, type.stored != DType::F16, "type") << "f16 overflows in this model; use bf16";
  TENON_CHECK(Usage, backend_->computes(), "device") << options.device << " computes nothing, so it cannot draw";
  check_exceptions(type, [this] { return networks_of(*model_); });
  check_rules(type, std::array<std::string_view, 4>{"transformer", "text_encoder", "vae_decoder", "vae_encoder"},
              PrecisionPolicy());
  networks_ = {.precision = {type.stored, type.stored},
               .policy = type.policy,
               .side = loras_.branches(),
               .fusion = options.fusion,
               .target = backend_->target()};
}

std::vector<std::filesystem::path> ZImageGenerator::files() const { return weight_files(model_->components()); }

Shape ZImageGenerator::latent_shape(const ImageRequest& r) const {
  const VaeConfig& vae = model_->vae();
  return {r.batch, vae.latent_channels, r.height / vae.downsampling(), r.width / vae.downsampling()};
}

ImageRequest ZImageGenerator::complete(ImageRequest r) const {
  const GenerationDefaults& d = model_->defaults();
  TENON_CHECK(Usage, r.clip_skip == 0, "clip skip") << "this model's text encoder is not CLIP";
  if (r.picture) take_picture(r, model_->size_unit());
  if (r.init && r.width == 0) r.width = r.init->width;
  if (r.init && r.height == 0) r.height = r.init->height;
  if (r.width == 0) r.width = d.width;
  if (r.height == 0) r.height = d.height;
  if (r.cfg_scale < 0) r.cfg_scale = d.cfg_scale;
  complete_sampling(r, d, model_->scheduler_config(), model_->name());
  check_size(*model_, r.height, r.width);
  take_prompt_loras(r, lora_folder_);
  TENON_CHECK(Usage, r.prompts.empty() || static_cast<int64_t>(r.prompts.size()) == r.batch, "prompts")
      << "expected one for each of " << r.batch << " images, got " << r.prompts.size();
  const std::vector<std::string> prompts = r.all_prompts();
  for (size_t i = 0; i < prompts.size(); ++i) refuse_extra_networks(prompts[i], prompt_label(prompts, i));
  refuse_extra_networks(r.negative, "negative prompt");
  TENON_CHECK(Usage, r.steps >= 1 && r.steps <= kMaxSteps, "steps") << r.steps << " is outside 1.." << kMaxSteps;
  check_batch(r.batch, batch_invariant_);
  TENON_CHECK(Usage, std::isfinite(r.cfg_scale), "guidance") << "the scale must be a finite number";
  TENON_CHECK(Usage, std::isfinite(r.cfg_normalization) && r.cfg_normalization >= 0, "guidance")
      << "expected a normalization of 0 or more, got " << r.cfg_normalization;
  TENON_CHECK(Usage, r.cfg_truncation >= 0 && r.cfg_truncation <= 1, "guidance")
      << "expected a truncation from 0 to 1, got " << r.cfg_truncation;
  if (r.init) check_init(r);
  if (r.latents.empty()) return r;
  const Shape shape = latent_shape(r);
  TENON_CHECK(Usage, static_cast<int64_t>(r.latents.size()) == shape.numel(), "latents")
      << "expected " << shape.numel() << " values " << shape.str() << ", got " << r.latents.size();
  for (const float v : r.latents) TENON_CHECK(Usage, std::isfinite(v), "latents") << "hold the value " << v;
  return r;
}

std::vector<std::string> ZImageGenerator::warnings(const ImageRequest& r, const std::string& word_list) const {
  const auto whole = [](std::string_view text) { return std::vector{WeightedText{std::string(text)}}; };
  std::vector<std::string> out =
      beyond_training(model_->name(), model_->known_words(), model_->defaults(), r, word_list, whole);
  const auto check = [&](const std::string& where, const std::string& text) {
    const auto count = static_cast<int64_t>(model_->tokens(text).size());
    if (count > kZImageTextTokens)
      out.push_back(where + ": has " + std::to_string(count) + " tokens with its template; " + model_->name() +
                    " reads the first " + std::to_string(kZImageTextTokens));
  };
  const std::vector<std::string> prompts = r.all_prompts();
  for (size_t i = 0; i < prompts.size(); ++i) check(prompt_label(prompts, i), prompts[i]);
  if (r.cfg_scale > 1) check("negative prompt", r.negative);
  return out;
}

ZImageGenerator::Texts ZImageGenerator::texts_of(const ImageRequest& r) const {
  Texts out;
  for (const std::string& prompt : r.all_prompts()) out.ids.push_back(model_->tokens(prompt));
  out.prompts = out.ids.size();
  if (r.cfg_scale > 1) out.ids.push_back(model_->tokens(r.negative));
  for (size_t i = 0; i < out.ids.size(); ++i) {
    std::vector<int32_t>& ids = out.ids[i];
    if (static_cast<int64_t>(ids.size()) > kZImageTextTokens) ids.resize(kZImageTextTokens);
    check_text(*model_, std::ssize(ids), i < out.prompts ? prompt_label(r.all_prompts(), i) : "negative prompt");
    out.rows = std::max(out.rows, text_rows(std::ssize(ids)));
  }
  return out;
}

ZImageShape ZImageGenerator::shape_of(const ImageRequest& r, const Texts& texts, int64_t timesteps) const {
  const int64_t factor = model_->vae().downsampling();
  return {.batch = r.batch,
          .guided = texts.ids.size() > texts.prompts,
          .height = r.height / factor,
          .width = r.width / factor,
          .tokens = texts.rows,
          .equal_texts = false,  // so that one plan serves every length
          .timesteps = timesteps};
}

void ZImageGenerator::check_fits(const ImageRequest& request) const {
  ImageRequest r = complete(request);
  const Texts texts = texts_of(r);
  // Memory of the largest network: only one is ready at a time.
  const auto needed = [&](int64_t width, int64_t height) {
    r.width = width;
    r.height = height;
    int64_t most =
        plan_memory(plan_transformer(*model_, shape_of(r, texts, r.steps), networks_), backend_, kept_.offload())
            .total();
    most = std::max(
        most,
        plan_memory(plan_vae_decode(*model_, r.batch, height, width, networks_), backend_, kept_.offload()).total());
    if (r.init)
      most = std::max(
          most, plan_memory(plan_vae_encode(*model_, 1, height, width, networks_), backend_, kept_.offload()).total());
    const auto count = static_cast<int64_t>(texts.ids.size());
    return std::max(most,
                    plan_memory(plan_text(*model_, count, texts.rows, networks_), backend_, kept_.offload()).total());
  };
  check_size_fits(r.width, r.height, model_->size_unit(), kept_.available(), needed, "the weights alone do not fit");
}

void ZImageGenerator::encode(Texts& texts, Timings& timings) {
  const auto count = static_cast<int64_t>(texts.ids.size());
  const auto load = Clock::now();
  Executable& e = kept_.get("text", "text_encoder", std::to_string(count) + "," + std::to_string(texts.rows),
                            [&] { return plan_text(*model_, count, texts.rows, networks_); });
  timings.load += seconds_since(load);
  const auto begin = Clock::now();
  std::vector<int32_t> ids;
  for (const std::vector<int32_t>& text : texts.ids) {  // padding after a text's end does not affect it
    ids.insert(ids.end(), text.begin(), text.end());
    ids.resize(ids.size() + static_cast<size_t>(texts.rows) - text.size(), 0);
  }
  e.set("tokens", HostView{DType::I32, {count, texts.rows}, ids.data()});
  e.run_all();
  texts.hidden = e.get("hidden");
  timings.text += seconds_since(begin);
}

std::vector<float> ZImageGenerator::encode_picture(const ImageRequest& r, const Sampler& sampler,
                                                   std::span<const NoiseSource> noise, Timings& timings) {
  const auto load = Clock::now();
  Executable& e = kept_.get("encoder", "vae", std::to_string(r.height) + "," + std::to_string(r.width),
                            [&] { return plan_vae_encode(*model_, 1, r.height, r.width, networks_); });
  timings.load += seconds_since(load);
  const auto begin = Clock::now();
  e.set("image", r.init->values);
  e.run_all();
  std::vector<float> latents = noised_latents(model_->vae(), e.get("moments"), sampler, noise);
  timings.encode = seconds_since(begin);
  return latents;
}

void ZImageGenerator::flow(const ImageRequest& r, Sampler& sampler, const Texts& texts,
                           std::span<const NoiseSource> noise, std::vector<float>& latents, ImageResult& result,
                           const OnStep& on_step) {
  const ZImageShape shape = shape_of(r, texts, sampler.calls());
  const auto load = Clock::now();
  std::string key;
  for (const int64_t n : {shape.batch, shape.height, shape.width, shape.tokens, shape.timesteps})
    key += std::to_string(n) + ",";
  key += std::to_string(shape.guided);
  Executable& e = kept_.get(
      "transformer", "transformer", key, [&] { return plan_transformer(*model_, shape, networks_); },
      KeptNetworks::Runs::EveryStep);
  result.timings.load += seconds_since(load);
  const auto begin = Clock::now();
  std::vector<float> times, hidden;
  for (int i = 0; i < sampler.calls(); ++i)  // the network's time runs from noise to picture
    times.push_back(static_cast<float>(1 - sampler.noise_level(i).sigma));
  std::vector<int32_t> tokens;
  const size_t per_text = texts.hidden.size() / texts.ids.size();
  for (int64_t s = 0; s < shape.sequences(); ++s) {  // prompts of all images, then their negative ones
    const size_t text = s >= r.batch ? texts.prompts : texts.prompts > 1 ? static_cast<size_t>(s) : 0;
    const auto first = texts.hidden.begin() + static_cast<std::ptrdiff_t>(text * per_text);
    hidden.insert(hidden.end(), first, first + static_cast<std::ptrdiff_t>(per_text));
    tokens.push_back(static_cast<int32_t>(texts.ids[text].size()));
  }
  e.set("times", times);
  e.set("text", hidden);
  e.set("text_tokens", HostView{DType::I32, {shape.sequences()}, tokens.data()});
  run_slower_phases(e);
  const ZImageGuidance guidance{r.cfg_scale, r.cfg_normalization, r.cfg_truncation};
  const auto velocity = [&](std::vector<float> direction, int call) {
    if (shape.guided) direction = guided(std::move(direction), r.batch, guidance, times[static_cast<size_t>(call)]);
    for (float& v : direction) v = -v;
    return direction;
  };
  denoise({e, "direction", velocity}, sampler, noise, latents, result.timings, on_step);
  result.timings.denoise = seconds_since(begin);
}

ImageResult ZImageGenerator::generate(const ImageRequest& request, const OnStep& on_step) {
  ImageRequest filled = complete(request);
  kept_.take_peak();  // of a picture that failed
  kept_.reread(loras_.apply(filled.loras));
  auto [sampler, noise, result] =
      begin_drawing(std::move(filled), model_->scheduler_config(), networks_, loras_.apply_as());
  result.batch_invariant = batch_invariant_;
  const ImageRequest& r = result.request;
  Texts texts = texts_of(r);
  encode(texts, result.timings);
  std::vector<float> latents = r.init ? encode_picture(r, *sampler, noise, result.timings) : r.latents;
  if (latents.empty()) latents = drawn_noise(latent_shape(r).numel(), noise);
  flow(r, *sampler, texts, noise, latents, result, on_step);
  const auto plan = [&] { return plan_vae_decode(*model_, r.batch, r.height, r.width, networks_); };
  if (r.decode) result.images = decoded(kept_, plan, r, latents, result.timings);
  result.peak_bytes = kept_.take_peak();
  result.latents = std::move(latents);
  return std::move(result);
}

}  // namespace tenon
