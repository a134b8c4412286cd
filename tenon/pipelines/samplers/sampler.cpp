// Shared by all samplers: checks, the start of image to image, the registry.
#include "tenon/pipelines/samplers/sampler.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tenon/core/error.h"
#include "tenon/core/similar.h"
#include "tenon/core/text.h"
#include "tenon/pipelines/samplers/registry.h"

namespace tenon {
namespace {

// Function-local, so that other files' registrations may run before this file's own initialisers.
std::vector<SamplerInfo>& registered() {
  static std::vector<SamplerInfo> all;
  return all;
}

std::string normalised(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

const SamplerInfo* find(const std::string& key) {
  for (const SamplerInfo& info : registered()) {
    for (const std::string& name : {info.name, info.a1111_name, info.diffusers_class})
      if (normalised(name) == key) return &info;
    for (const std::string& alias : info.aliases)
      if (normalised(alias) == key) return &info;
  }
  return nullptr;
}

// Every name that find() recognises, main names first.
std::vector<std::string> all_names() {
  std::vector<std::string> out = sampler_names();
  for (const SamplerInfo& info : registered()) {
    out.push_back(info.a1111_name);
    out.insert(out.end(), info.aliases.begin(), info.aliases.end());
    out.push_back(info.diffusers_class);
  }
  return out;
}

}  // namespace

RegisterSampler::RegisterSampler(SamplerInfo info) { registered().push_back(std::move(info)); }

std::vector<std::string> sampler_names() {
  std::vector<std::string> names;
  for (const SamplerInfo& info : registered()) names.push_back(info.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string a1111_sampler_name(std::string_view name) {
  const SamplerInfo* info = find(normalised(name));
  return info ? info->a1111_name : std::string(name);
}

nlohmann::json sd15_scheduler_config() {
  return {{"_class_name", "PNDMScheduler"},   {"beta_start", 0.00085},       {"beta_end", 0.012},
          {"beta_schedule", "scaled_linear"}, {"num_train_timesteps", 1000}, {"set_alpha_to_one", false},
          {"skip_prk_steps", true},           {"steps_offset", 1},           {"clip_sample", false}};
}

namespace {

std::vector<std::string> flow_matching_names() {
  std::vector<std::string> out;
  for (const SamplerInfo& info : registered())
    if (info.flow_matching) out.push_back(info.name);
  return out;
}

const SamplerInfo& of_config(const Settings& config) {
  const std::string name = config.class_name();
  const SamplerInfo* info = find(normalised(name));
  if (!info)
    throw Error(
        ErrorKind::Model, config.where("_class_name"), "scheduler '" + shown(name) + "' is not implemented",
        "name one of these samplers: " + joined(is_flow_matching(config) ? flow_matching_names() : sampler_names()));
  return *info;
}

// "DPM++ 2M Karras" means a sampler with an option.
const SamplerInfo& of_name(const std::string& name, SamplerOptions& options) {
  std::string key = normalised(name);
  constexpr std::string_view kKarras = "karras";
  if (key.size() > kKarras.size() && key.ends_with(kKarras)) {
    key.resize(key.size() - kKarras.size());
    TENON_CHECK(Usage, options.karras.value_or(true), "sampler")
        << "'" << shown(name) << "' means Karras noise levels, but the discrete schedule was requested";
    options.karras = true;
  }
  const SamplerInfo* info = find(key);
  if (!info)
    throw Error(ErrorKind::Usage, "sampler",
                "unknown sampler '" + shown(name) + "'; samplers: " + joined(sampler_names()),
                did_you_mean(name, all_names()));
  return *info;
}

}  // namespace

bool is_flow_matching(const Settings& config) {
  return config.has("_class_name") && config.class_name().starts_with("FlowMatch");
}

bool is_configs_sampler(std::string_view name, const Settings& config) {
  SamplerOptions options;
  return name.empty() ||
         (config.has("_class_name") && &of_name(std::string(name), options) == find(normalised(config.class_name())));
}

SamplerChoice choose_sampler(std::string_view name, const Settings& config, const SamplerOptions& options) {
  SamplerOptions chosen = options;
  const SamplerInfo& info = name.empty() ? of_config(config) : of_name(std::string(name), chosen);
  TENON_CHECK(Usage, info.flow_matching || !is_flow_matching(config), "sampler")
      << "'" << info.name << "' cannot do flow matching, which this model was trained for; use "
      << joined(flow_matching_names());
  TENON_CHECK(Usage, !chosen.flow_shift || is_flow_matching(config), "flow shift")
      << "is for flow-matching models only";
  TENON_CHECK(Usage, !chosen.flow_shift || (*chosen.flow_shift >= 1e-3 && *chosen.flow_shift <= 1e3), "flow shift")
      << *chosen.flow_shift << " is outside 0.001..1000";
  TENON_CHECK(Usage, info.karras != KarrasLevels::Never || !chosen.karras.value_or(false), info.name)
      << "has no noise levels, so the Karras schedule does not apply to it";
  TENON_CHECK(Usage, info.default_eta || chosen.eta.value_or(0) == 0, info.name) << "takes no eta";
  const double eta = chosen.eta.value_or(0);
  TENON_CHECK(Usage, eta >= 0 && eta <= 1, "eta") << "expected 0..1, got " << eta;
  if (!info.default_eta || !chosen.eta) chosen.eta = info.default_eta;
  if (info.karras == KarrasLevels::Never)
    chosen.karras.reset();
  else if (!chosen.karras)
    chosen.karras = info.karras == KarrasLevels::IfConfigured && config.flag("use_karras_sigmas", false);
  return {info.name, chosen};
}

std::unique_ptr<Sampler> make_sampler(std::string_view name, const Settings& config, const SamplerOptions& options) {
  const SamplerChoice choice = choose_sampler(name, config, options);
  return find(normalised(choice.name))->make(config, choice.options);
}

void Sampler::set_steps(int steps, double strength) {
  TENON_CHECK(Usage, steps >= 1 && steps <= max_steps(), "steps") << "expected 1.." << max_steps() << ", got " << steps;
  TENON_CHECK(Usage, strength > 0 && strength <= 1, "strength")
      << "expected more than 0 and at most 1, got " << strength;
  const int kept = kept_steps(steps, strength);
  if (kept < 1)
    throw Error(ErrorKind::Usage, "strength",
                "strength " + number_text(strength) + " of " + std::to_string(steps) + " steps leaves no step",
                "use more steps or a strength of at least 1 / steps");
  TENON_CHECK(Usage, kept == steps || can_start_late(), "strength")
      << "this sampler's Runge-Kutta start cannot begin in the middle of its schedule";
  all_timesteps_.clear();  // if lay_out throws, no call can be made
  all_timesteps_ = lay_out(steps);
  first_ = static_cast<size_t>(steps - kept);
  next_call_ = 0;
}

int Sampler::kept_steps(int steps, double strength) const {
  return std::min(static_cast<int>(steps * strength), steps);
}

std::span<const double> Sampler::timesteps() const {
  return std::span<const double>(all_timesteps_).subspan(std::min(first_, all_timesteps_.size()));
}

void Sampler::scale_model_input(std::span<float>, int) const {}

void Sampler::step(std::span<const float> output, int call, std::span<float> sample, const NoiseSource& noise) {
  TENON_CHECK(Internal, output.size() == sample.size(), "sampler step")
      << "model output has " << output.size() << " elements, the sample " << sample.size();
  TENON_CHECK(Internal, call == next_call_ && call < calls(), "sampler step")
      << "expected call " << next_call_ << " of " << calls() << ", got " << call;
  TENON_CHECK(Internal, noise || !needs_noise(), "sampler step") << "no noise source for a sampler that adds noise";
  advance(output, static_cast<int>(first_) + call, call, sample, noise);
  ++next_call_;
}

NoiseLevel Sampler::noise_level(int call) const {
  TENON_CHECK(Internal, call >= 0 && call < calls(), "noise_level") << "call " << call << " of " << calls();
  return level(static_cast<int>(first_) + call);
}

void Sampler::add_noise(std::span<float> sample, std::span<const float> noise, int call) const {
  TENON_CHECK(Internal, sample.size() == noise.size(), "add_noise")
      << "sample has " << sample.size() << " elements, the noise " << noise.size();
  const NoiseLevel mix = noise_level(call);
  for (size_t i = 0; i < sample.size(); ++i)
    sample[i] = static_cast<float>(mix.alpha * sample[i] + mix.sigma * noise[i]);
}

}  // namespace tenon
