#include "tenon/pipelines/generation_defaults.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/image.h"
#include "tenon/models/config_reader.h"
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {
namespace {

constexpr size_t kWordsShown = 8, kWordLength = 30;  // limits on unknown words in messages

// The beginning of a word, in whole UTF-8 characters.
std::string shortened(const std::string& word) {
  if (word.size() <= kWordLength) return word;
  size_t end = kWordLength;
  while (end > 0 && (static_cast<unsigned char>(word[end]) & 0xc0) == 0x80) --end;
  return word.substr(0, end) + "..";
}

}  // namespace

void read_own_defaults(GenerationDefaults& d, const nlohmann::json& model_index, const std::string& file, int64_t unit,
                       const Settings& scheduler) {
  if (!model_index.is_object() || !model_index.contains("_tenon_defaults")) return;
  ConfigReader own(model_index["_tenon_defaults"], file + " _tenon_defaults");
  const auto side = [&](const char* key, int64_t fallback) {
    const int64_t pixels = own.integer(key, fallback, 1, kMaxImageSide);
    if (pixels % unit) own.refuse(key, "a multiple of " + std::to_string(unit));
    return pixels;
  };
  d.width = side("width", d.width);
  d.height = side("height", d.height);
  d.steps = static_cast<int>(own.integer("steps", d.steps, 1, kMaxSteps));
  d.cfg_scale = own.number("guidance_scale", d.cfg_scale, 0, 1e6);
  d.sampler = own.name("sampler", d.sampler);
  try {
    if (!d.sampler.empty()) choose_sampler(d.sampler, scheduler);
  } catch (const Error&) {
    own.refuse("sampler", "one of " + joined(sampler_names()));
  }
}

void complete_sampling(ImageRequest& r, const GenerationDefaults& d, const Settings& scheduler,
                       const std::string& model) {
  if (r.sampler.empty()) r.sampler = d.sampler;
  const SamplerChoice chosen = choose_sampler(r.sampler, scheduler, r.sampler_options);
  r.sampler = chosen.name;
  r.sampler_options = chosen.options;
  const std::unique_ptr<Sampler> sampler = make_sampler(r.sampler, scheduler, r.sampler_options);
  if (r.steps != 0) return;
  r.steps = d.steps;
  try {
    sampler->set_steps(r.steps);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Usage) throw;
    throw Error(ErrorKind::Model, model,
                "its default of " + std::to_string(r.steps) + " steps does not fit its scheduler: " + e.what(),
                "ask for another number of steps");
  }
}

std::string prompt_label(std::span<const std::string> prompts, size_t i) {
  if (prompts.size() < 2) return "prompt";
  return "prompt " + std::to_string(i + 1) + " ('" + shown(prompts[i]) + "')";
}

std::vector<std::string> beyond_training(const std::string& model, const KnownWords& known, const GenerationDefaults& d,
                                         const ImageRequest& r, const std::string& word_list,
                                         const std::function<std::vector<WeightedText>(std::string_view)>& parts_of) {
  std::vector<std::string> out;
  if (known.empty()) return out;
  const auto check = [&](const std::string& where, const std::string& text) {
    const std::vector<std::string> unknown = unknown_words(known, parts_of(text));
    if (unknown.empty()) return;
    std::string list;
    for (size_t i = 0; i < std::min(unknown.size(), kWordsShown); ++i)
      list.append(i ? ", '" : "'").append(shortened(unknown[i])).append("'");
    if (unknown.size() > kWordsShown) list += " and " + std::to_string(unknown.size() - kWordsShown) + " more";
    out.push_back(where + ": " + model + " does not know " + list +
                  ", so the picture may not show it (words it knows: " + word_list + ")");
  };
  const std::vector<std::string> prompts = r.all_prompts();
  for (size_t i = 0; i < prompts.size(); ++i) check(prompt_label(prompts, i), prompts[i]);
  if (r.cfg_scale > 1) check("negative prompt", r.negative);
  if (r.width != d.width || r.height != d.height)
    out.push_back("size: " + model + " was trained on " + std::to_string(d.width) + "x" + std::to_string(d.height) +
                  " only, not on " + std::to_string(r.width) + "x" + std::to_string(r.height));
  return out;
}

}  // namespace tenon
