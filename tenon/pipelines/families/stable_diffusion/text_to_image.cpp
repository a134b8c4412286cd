#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/io/files.h"
#include "tenon/io/prompt_weights.h"
#include "tenon/pipelines/denoise.h"
#include "tenon/pipelines/emphasis.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {
TextToImage::TextToImage(std::shared_ptr<const StableDiffusionModel> model, const PipelineOptions& options)
    : model_(std::move(model)),
      options_(options),
      backend_(make_backend(options.device, {.threads = options.threads, .batch_invariant = options.batch_invariant})),
      loras_([this] { return stable_diffusion_lora_names(model_->config()); }, options),
      kept_(
          backend_, [this](const std::string& component) { return loras_.over(component, model_->weights(component)); },
          options) {
  model_->require_components();  // a picture would end in their errors after minutes of denoising
  const std::vector<DType> types = backend_->types();
  const NetworkType type = options.type.value_or(types.front());
  std::string known;
  for (DType t : types) (known += known.empty() ? "" : " or ") += name_of(t);
  TENON_CHECK(Usage, std::find(types.begin(), types.end(), type.stored) != types.end(), "type")
      << name_of(type.stored) << " is not supported by " << backend_->name() << "; use " << known;
  check_exceptions(type, [this] { return networks_of(*model_); });
  check_rules(type, std::array<std::string_view, 4>{"unet", "text_encoder", "vae_decoder", "vae_encoder"});
  networks_ = {.precision = {type.stored, type.stored},
               .policy = type.policy,
               .side = loras_.branches(),
               .fusion = options.fusion,
               .target = backend_->target()};
  TENON_CHECK(Usage, backend_->computes(), "device") << options.device << " computes nothing, so it cannot draw";
}

TextToImage::~TextToImage() = default;

std::vector<std::filesystem::path> TextToImage::files() const {
  if (!model_->checkpoint()) return {};
  return weight_files(model_->checkpoint()->components());
}

Shape TextToImage::latent_shape(const ImageRequest& r) const {
  const VaeConfig& vae = model_->config().vae;
  return {r.batch, vae.latent_channels, r.height / vae.downsampling(), r.width / vae.downsampling()};
}

void TextToImage::check_latents(const ImageRequest& r) const {
  const Shape shape = latent_shape(r);
  TENON_CHECK(Usage, static_cast<int64_t>(r.latents.size()) == shape.numel(), "latents")
      << "expected " << shape.numel() << " values " << shape.str() << ", got " << r.latents.size();
  for (const float v : r.latents) TENON_CHECK(Usage, std::isfinite(v), "latents") << "hold the value " << v;
}

ImageRequest TextToImage::complete(ImageRequest r) const {
  const GenerationDefaults& d = model_->defaults();
  if (r.picture) take_picture(r, model_->config().vae.downsampling());
  if (r.init) {
    if (r.width == 0) r.width = r.init->width;
    if (r.height == 0) r.height = r.init->height;
  }
  if (r.init && r.width == r.init->width && r.height == r.init->height) {
    const int64_t factor = model_->config().vae.downsampling();
    TENON_CHECK(Usage, r.width % factor == 0 && r.height % factor == 0, "init image")
        << "is " << r.width << "x" << r.height << "; both sides must be multiples of " << factor;
  }
  if (r.width == 0) r.width = d.width;
  if (r.height == 0) r.height = d.height;
  if (r.cfg_scale < 0) r.cfg_scale = d.cfg_scale;
  model_->complete_sampling(r);
  check_size(*model_, r.height, r.width);
  TENON_CHECK(Usage, r.prompts.empty(), "prompts") << "models of this family take one prompt for all images of a batch";
  take_prompt_loras(r, options_.lora_folder);
  refuse_extra_networks(r.prompt, "prompt");
  refuse_extra_networks(r.negative, "negative prompt");
  TENON_CHECK(Usage, r.steps >= 1 && r.steps <= kMaxSteps, "steps") << r.steps << " is outside 1.." << kMaxSteps;
  check_batch(r.batch, options_.batch_invariant);
  const int64_t layers = model_->config().text.layers;
  TENON_CHECK(Usage, r.clip_skip >= 0 && r.clip_skip < layers, "clip skip")
      << r.clip_skip << " is outside 0.." << layers - 1;
  TENON_CHECK(Usage, std::isfinite(r.cfg_scale), "guidance") << "the scale must be a finite number";
  TENON_CHECK(Usage, r.cfg_normalization == 0 && r.cfg_truncation == 1, "guidance")
      << "normalization and truncation are for Z-Image only";
  if (!r.latents.empty()) check_latents(r);
  if (r.init) check_init(r);
  return r;
}

std::vector<std::string> TextToImage::warnings(const ImageRequest& r, const std::string& word_list) const {
  return beyond_training(model_->name(), model_->known_words(), model_->defaults(), r, word_list, parse_prompt_weights);
}

GenerationShape TextToImage::shape_of(const ImageRequest& r, int64_t tokens, int64_t timesteps) const {
  return {r.batch, r.height, r.width, r.cfg_scale > 1, tokens, timesteps};
}

// Memory of the largest network: only one is ready at a time.
int64_t TextToImage::planned_bytes(const ImageRequest& r, int64_t windows) const {
  const GenerationShape s = shape_of(r, model_->config().text.positions * windows, r.steps);
  int64_t most = plan_memory(plan_unet(*model_, s, networks_), backend_, kept_.offload()).total();
  most = std::max(
      most,
      plan_memory(plan_text(*model_, windows * (s.guided ? 2 : 1), networks_), backend_, kept_.offload()).total());
  most = std::max(most, plan_memory(plan_vae_decode(*model_, s, networks_), backend_, kept_.offload()).total());
  if (r.init)
    most = std::max(most, plan_memory(plan_vae_encode(*model_, s, networks_), backend_, kept_.offload()).total());
  return most;
}

void TextToImage::check_fits(const ImageRequest& request) const {
  ImageRequest r = complete(request);
  const int64_t windows = static_cast<int64_t>(windows_of(r).front().size());
  const auto needed = [&](int64_t width, int64_t height) {
    r.width = width;
    r.height = height;
    return planned_bytes(r, windows);
  };
  check_size_fits(r.width, r.height, model_->config().vae.downsampling(), kept_.available(), needed,
                  "no size fits with a prompt of " + std::to_string(windows) + " windows of tokens");
}

std::vector<std::vector<TokenWindow>> TextToImage::windows_of(const ImageRequest& r) const {
  const ClipTokenizer& tokenizer = model_->tokenizer();
  const bool guided = r.cfg_scale > 1;
  const WeightedTokens positive = tokenizer.encode_weighted(r.prompt), negative = tokenizer.encode_weighted(r.negative);
  size_t count = tokenizer.windows(positive).size();
  if (guided) count = std::max(count, tokenizer.windows(negative).size());
  std::vector<std::vector<TokenWindow>> texts;
  if (guided) texts.push_back(tokenizer.windows(negative, count));
  texts.push_back(tokenizer.windows(positive, count));
  return texts;
}

std::vector<float> TextToImage::encode_windows(const std::vector<TokenWindow>& windows, int64_t clip_skip,
                                               Timings& timings) {
  const int64_t rows = static_cast<int64_t>(windows.size()), length = model_->config().text.positions;
  const auto load = Clock::now();
  Executable& e = kept_.get("text", "text_encoder", std::to_string(rows) + "," + std::to_string(clip_skip),
                            [&] { return plan_text(*model_, rows, networks_, clip_skip); });
  timings.load += seconds_since(load);
  const auto begin = Clock::now();
  std::vector<int32_t> ids;
  for (const TokenWindow& w : windows) ids.insert(ids.end(), w.ids.begin(), w.ids.end());
  e.set("tokens", HostView{DType::I32, {rows, length}, ids.data()});
  e.run_all();
  std::vector<float> hidden = e.get("hidden");
  timings.text += seconds_since(begin);
  return hidden;
}

std::vector<float> TextToImage::encode_prompts(const ImageRequest& r, int64_t& tokens, Timings& timings) {
  const ClipTextConfig& config = model_->config().text;
  const std::vector<std::vector<TokenWindow>> texts = windows_of(r);
  const size_t count = texts.front().size();
  const int64_t length = config.positions;
  std::vector<TokenWindow> together;
  std::vector<float> hidden;
  for (const auto& windows : texts) {
    together.insert(together.end(), windows.begin(), windows.end());
    const bool last = &windows == &texts.back();
    if (!last && r.clip_skip == 0) continue;  // one run for all texts
    const std::vector<float> states = encode_windows(together, last ? r.clip_skip : 0, timings);
    hidden.insert(hidden.end(), states.begin(), states.end());
    together.clear();
  }
  // [text][batch] order: the negative text for every image, then the positive ones.
  std::vector<float> context;
  const size_t per_text = hidden.size() / texts.size();
  for (size_t t = 0; t < texts.size(); ++t) {
    std::vector<float> part(hidden.begin() + static_cast<int64_t>(t * per_text),
                            hidden.begin() + static_cast<int64_t>((t + 1) * per_text));
    apply_emphasis(part, texts[t], config.hidden);
    for (int64_t b = 0; b < r.batch; ++b) context.insert(context.end(), part.begin(), part.end());
  }
  tokens = length * static_cast<int64_t>(count);
  return context;
}

std::vector<float> TextToImage::initial_latents(const ImageRequest& r, Sampler& sampler,
                                                std::vector<NoiseSource>& noise, Timings& timings) {
  if (!r.init) {
    std::vector<float> latents = r.latents.empty() ? drawn_noise(latent_shape(r).numel(), noise) : r.latents;
    for (float& v : latents) v = static_cast<float>(v * sampler.init_noise_sigma());
    return latents;
  }
  const auto begin = Clock::now();
  ImageRequest one = r;
  one.batch = 1;
  const GenerationShape shape = shape_of(one, 0, 0);
  Executable& e = kept_.get("encoder", "vae", std::to_string(r.width) + "x" + std::to_string(r.height),
                            [&] { return plan_vae_encode(*model_, shape, networks_); });
  e.set("image", r.init->values);
  e.run_all();
  std::vector<float> latents = noised_latents(model_->config().vae, e.get("moments"), sampler, noise);
  timings.encode = seconds_since(begin);
  return latents;
}

void TextToImage::denoise(Sampler& sampler, const std::vector<float>& context, int64_t tokens,
                          std::vector<float>& latents, const std::vector<NoiseSource>& noise, ImageResult& result,
                          const OnStep& on_step) {
  const ImageRequest& r = result.request;
  const std::vector<double> steps(sampler.timesteps().begin(), sampler.timesteps().end());
  const GenerationShape shape = shape_of(r, tokens, static_cast<int64_t>(steps.size()));
  const auto load = Clock::now();
  const std::string key = std::to_string(r.batch) + "," + std::to_string(r.height) + "," + std::to_string(r.width) +
                          "," + std::to_string(shape.guided) + "," + std::to_string(tokens) + "," +
                          std::to_string(steps.size());
  Executable& unet = kept_.get(
      "unet", "unet", key, [&] { return plan_unet(*model_, shape, networks_); }, KeptNetworks::Runs::EveryStep);
  result.timings.load += seconds_since(load);
  const auto begin = Clock::now();
  std::vector<float> times(steps.begin(), steps.end());
  unet.set("timesteps", times);
  unet.set("context", context);
  run_slower_phases(unet);
  const auto guided = [&](std::vector<float> e, int) {
    if (!shape.guided) return e;
    const float g = static_cast<float>(r.cfg_scale);
    for (size_t k = 0; k < latents.size(); ++k) e[k] += g * (e[k + latents.size()] - e[k]);
    e.resize(latents.size());
    return e;
  };
  tenon::denoise({unet, "noise", guided}, sampler, noise, latents, result.timings, on_step);
  result.timings.denoise = seconds_since(begin);
}

ImageResult TextToImage::generate(const ImageRequest& request, const OnStep& on_step) {
  ImageRequest filled = complete(request);
  kept_.take_peak();  // of a picture that failed
  kept_.reread(loras_.apply(filled.loras));
  const Settings scheduler = model_->scheduler_config(filled.sampler);
  auto [sampler, noise, result] = begin_drawing(std::move(filled), scheduler, networks_, loras_.apply_as());
  result.batch_invariant = options_.batch_invariant;
  const ImageRequest& r = result.request;
  int64_t tokens = 0;
  const std::vector<float> context = encode_prompts(r, tokens, result.timings);
  std::vector<float> latents = initial_latents(r, *sampler, noise, result.timings);
  denoise(*sampler, context, tokens, latents, noise, result, on_step);
  const auto plan = [&] { return plan_vae_decode(*model_, shape_of(r, 0, 0), networks_); };
  if (r.decode) result.images = decoded(kept_, plan, r, latents, result.timings);
  result.peak_bytes = kept_.take_peak();
  result.latents = std::move(latents);
  return std::move(result);
}

}  // namespace tenon
