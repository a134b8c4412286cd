#include "tenon/pipelines/denoise.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/stop.h"
#include "tenon/io/files.h"
#include "tenon/io/image.h"
#include "tenon/io/random.h"

namespace tenon {
namespace {

// Repeats the step, checking every launch, to report where the first non-finite value came from.
[[noreturn]] void name_launch(Executable& network, int step) {
  const std::string where = "step " + std::to_string(step + 1);
  const std::shared_ptr<void> checks = network.checks_finite();  // only of this step: it may be kept for other pictures
  try {
    network.run(Rate::Step);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Numeric) throw;
    throw Error(ErrorKind::Numeric, where, e.what());
  }
  throw Error(ErrorKind::Numeric, where, "the guided output is not finite");
}

// Fills `out`, which holds one image per source.
void draw(std::span<const NoiseSource> noise, std::span<float> out) {
  const size_t per_image = out.size() / noise.size();
  for (size_t b = 0; b < noise.size(); ++b) noise[b](out.subspan(b * per_image, per_image));
}

}  // namespace

Drawing begin_drawing(ImageRequest request, const Settings& scheduler, const NetworkOptions& networks, LoraApply lora) {
  Drawing out;
  out.sampler = make_sampler(request.sampler, scheduler, request.sampler_options);
  out.sampler->set_steps(request.steps, request.init ? request.strength : 1.0);
  out.result.type = networks.type();
  out.result.fusion = networks.fusion;
  out.result.lora_apply = lora;
  out.result.timesteps.assign(out.sampler->timesteps().begin(), out.sampler->timesteps().end());
  for (int i = 0; i < out.sampler->calls(); ++i) {
    const NoiseLevel level = out.sampler->noise_level(i);
    out.result.sigmas.push_back(level.sigma / level.alpha);
  }
  for (int64_t b = 0; b < request.batch; ++b) {
    const uint64_t seed = out.result.seeds.emplace_back(request.seed + static_cast<uint64_t>(b));
    out.noise.emplace_back([g = TorchGenerator(seed)](std::span<float> to) mutable { g.randn(to); });
  }
  out.result.request = std::move(request);
  return out;
}

std::vector<float> drawn_noise(int64_t numel, std::span<const NoiseSource> noise) {
  std::vector<float> out(static_cast<size_t>(numel));
  draw(noise, out);
  return out;
}

void run_slower_phases(Executable& network) {
  for (const Phase& p : network.plan().phases)
    if (p.rate != Rate::Step) network.run(p.rate);
}

void denoise(const DenoisingNetwork& network, Sampler& sampler, std::span<const NoiseSource> noise,
             std::vector<float>& latents, Timings& timings, const OnStep& on_step) {
  const NoiseSource every = [&](std::span<float> out) { draw(noise, out); };
  Executable& e = network.executable;
  for (int i = 0; i < sampler.calls(); ++i) {
    check_stop("generate");  // a device may run a whole step as one launch
    const auto begin = Clock::now();
    std::vector<float> x = latents;
    sampler.scale_model_input(x, i);
    e.set("latents", x);
    e.set_scalar("step", i);
    e.run(Rate::Step);
    const std::vector<float> output = network.guided(e.get(network.result), i);
    if (!std::ranges::all_of(output, [](float v) { return std::isfinite(v); })) name_launch(e, i);
    sampler.step(output, i, latents, every);
    timings.steps.push_back(seconds_since(begin));
    const double time = sampler.timesteps()[static_cast<size_t>(i)];
    if (on_step) on_step({i + 1, sampler.calls(), timings.steps.back(), time, latents});
  }
}

void take_picture(ImageRequest& r, int64_t unit) {
  TENON_CHECK(Usage, r.latents.empty(), "latents") << "cannot be given together with a picture to start from";
  const Image picture = std::move(*r.picture);
  r.picture.reset();
  TENON_CHECK(Usage, (r.width || picture.width >= unit) && (r.height || picture.height >= unit), "init image")
      << "is " << picture.width << "x" << picture.height << ", expected sides of at least " << unit
      << " where no width and height are given";
  if (r.width == 0) r.width = picture.width / unit * unit;
  if (r.height == 0) r.height = picture.height / unit * unit;
  check_sides(r.height, r.width, unit);
  r.init = InitImage(fit(picture, r.width, r.height, r.resize_mode));
  if (r.width == picture.width && r.height == picture.height) return;
  r.init->scaled_from = {picture.width, picture.height};
  r.init->sha256 = sha256_hex(std::as_bytes(std::span(picture.pixels)));
}

void check_init(const ImageRequest& r) {
  TENON_CHECK(Usage, r.strength > 0 && r.strength <= 1, "strength") << r.strength << " is outside (0, 1]";
  TENON_CHECK(Usage, r.init->width == r.width && r.init->height == r.height, "init image")
      << "is " << r.init->width << "x" << r.init->height << ", expected " << r.width << "x" << r.height;
  TENON_CHECK(Usage, r.latents.empty(), "latents") << "cannot be given together with a picture to start from";
}

std::vector<float> noised_latents(const VaeConfig& vae, std::span<const float> moments, const Sampler& sampler,
                                  std::span<const NoiseSource> noise) {
  const size_t per_image = moments.size() / 2;
  std::vector<float> latents(per_image * noise.size()), draw(per_image);
  for (size_t b = 0; b < noise.size(); ++b) {
    noise[b](draw);  // the stream's first numbers are the noise of the distribution
    const std::span<float> z = std::span(latents).subspan(b * per_image, per_image);
    for (size_t i = 0; i < per_image; ++i)
      z[i] = static_cast<float>(vae.latent_of(moments[i] + std::exp(0.5f * moments[per_image + i]) * draw[i]));
    noise[b](draw);
    sampler.add_noise(z, draw, 0);
  }
  return latents;
}

std::vector<Image> decoded(KeptNetworks& kept, const std::function<Plan()>& plan, const ImageRequest& r,
                           const std::vector<float>& latents, Timings& timings) {
  const auto load = Clock::now();
  const std::string key = std::to_string(r.batch) + "," + std::to_string(r.height) + "," + std::to_string(r.width);
  Executable& e = kept.get("decoder", "vae", key, plan);
  timings.load += seconds_since(load);
  const auto begin = Clock::now();
  e.set("latents", latents);
  e.run_all();
  std::vector<Image> images = images_of(e.get("pixels"), r.batch, r.height, r.width);
  timings.decode = seconds_since(begin);
  return images;
}

std::vector<Image> images_of(std::span<const float> pixels, int64_t count, int64_t height, int64_t width) {
  std::vector<Image> images;
  const size_t per_image = pixels.size() / static_cast<size_t>(count);
  for (int64_t b = 0; b < count; ++b) {
    const std::span<const float> from = pixels.subspan(static_cast<size_t>(b) * per_image, per_image);
    Image image{width, height, 3, std::vector<uint8_t>(per_image)};
    const auto bad = std::ranges::find_if_not(from, [](float x) { return std::isfinite(x); });
    TENON_CHECK(Numeric, bad == from.end(), "vae decode")
        << "pixel value " << bad - from.begin() << " of image " << b << " is " << *bad;
    for (size_t i = 0; i < per_image; ++i) {
      // A float of this sum has no fraction bits: the addition rounds to nearest even, without a call.
      constexpr float kWhole = 12582912;  // 1.5 * 2^23
      const float v = std::min(std::max(from[i], 0.0f), 1.0f) * 255.0f;
      image.pixels[i] = static_cast<uint8_t>(static_cast<int>(v + kWhole - kWhole));
    }
    images.push_back(std::move(image));
  }
  return images;
}

void check_size_fits(int64_t width, int64_t height, int64_t unit, int64_t available,
                     const std::function<int64_t(int64_t, int64_t)>& needed, const std::string& otherwise) {
  const auto begin = Clock::now();
  const int64_t bytes = needed(width, height);
  spdlog::debug("memory: {} MiB needed, {} MiB available, planned in {:.3f} s", bytes >> 20, available >> 20,
                seconds_since(begin));
  if (bytes <= available) return;
  // Binary search over the shorter side for the largest size of that aspect ratio that fits.
  int64_t fits = 0, too_large = std::min(width, height) / unit;
  const auto scaled = [&](int64_t side, int64_t units) {
    const double scale = static_cast<double>(units * unit) / static_cast<double>(std::min(width, height));
    return std::max<int64_t>(static_cast<int64_t>(static_cast<double>(side) * scale) / unit, 1) * unit;
  };
  while (too_large - fits > std::max<int64_t>(1, fits / 32)) {
    const int64_t middle = (fits + too_large) / 2;
    (needed(scaled(width, middle), scaled(height, middle)) <= available ? fits : too_large) = middle;
  }
  throw Error(ErrorKind::Memory, "size",
              std::to_string(width) + "x" + std::to_string(height) + " needs " + std::to_string(bytes >> 20) +
                  " MiB, " + std::to_string(available >> 20) + " MiB are available",
              fits > 0 ? "the largest size of this aspect ratio that fits is about " +
                             std::to_string(scaled(width, fits)) + "x" + std::to_string(scaled(height, fits))
                       : otherwise);
}

void check_sides(int64_t height, int64_t width, int64_t unit) {
  for (const auto& [what, size] : {std::pair<const char*, int64_t>{"height", height}, {"width", width}}) {
    TENON_CHECK(Usage, size > 0 && size <= kMaxImageSide, what)
        << size << " is outside " << unit << ".." << kMaxImageSide;
    const int64_t nearest = std::max<int64_t>((size + unit / 2) / unit * unit, unit);
    TENON_CHECK(Usage, size % unit == 0, what)
        << size << " is not a multiple of " << unit << "; the nearest is " << nearest;
  }
}

}  // namespace tenon
