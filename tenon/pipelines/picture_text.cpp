#include "tenon/pipelines/picture_text.h"

#include <algorithm>
#include <utility>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/options.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/pipelines/lora_set.h"
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kModelDigits = 10, kLoraDigits = 12;  // of hashes in AUTOMATIC1111's text
constexpr uintmax_t kCachedFrom = 64u << 20;

// SHA-256 of large files by path, size and modification time. A cache that cannot be read or written is not an error:
// hashes are then recomputed.
class HashCache {
 public:
  HashCache() : path_(cached("sha256.json")) {
    try {
      if (file_exists(path_)) known_ = read_json_object(path_);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Cancelled) throw;
      warn(e.what());
      known_ = nlohmann::json::object();
    }
  }

  std::string of(const fs::path& file) {
    std::error_code failed;
    const uintmax_t size = fs::file_size(file, failed);
    const auto time = fs::last_write_time(file, failed).time_since_epoch().count();
    const fs::path place = fs::weakly_canonical(file, failed);
    if (failed || size < kCachedFrom) return sha256_file(file);
    const std::string key = as_utf8(place.native()) + " " + std::to_string(size) + " " + std::to_string(time);
    if (known_.contains(key) && known_[key].is_string()) return known_[key].get<std::string>();
    std::string hash = sha256_file(file);
    known_[key] = hash;
    keep();
    return hash;
  }

 private:
  void keep() {
    if (path_.empty()) return;
    std::error_code failed;
    fs::create_directories(path_.parent_path(), failed);
    const std::string text = known_.dump(1);
    try {
      if (!failed) write_file(path_, std::as_bytes(std::span(text)), Overwrite::Yes);
    } catch (const Error& e) {
      warn(e.what());
    }
    if (failed) warn(path_.string() + ": " + failed.message());
  }
  void warn(const std::string& why) {
    if (!std::exchange(warned_, true)) spdlog::warn("hash cache: {}", why);
  }

  fs::path path_;
  nlohmann::json known_ = nlohmann::json::object();
  bool warned_ = false;
};

std::string pixel_hash(const Image& image) { return sha256_hex(std::as_bytes(std::span(image.pixels))); }

PictureSettings a1111_settings(const ImageResult& result, size_t i, const ModelText& model, const MadeBy& by) {
  const ImageRequest& r = result.request;
  PictureSettings s{{"Steps", std::to_string(r.steps)},
                    {"Sampler", a1111_sampler_name(r.sampler)},
                    {"CFG scale", number_text(r.cfg_scale)},
                    {"Seed", std::to_string(result.seeds[i])},
                    {"Size", std::to_string(r.width) + "x" + std::to_string(r.height)}};
  if (!model.sha256.empty()) s.emplace_back("Model hash", model.sha256.substr(0, kModelDigits));
  const fs::path file = model.name;
  s.emplace_back("Model", has_ending(file, {".safetensors", ".gguf"}) ? file.stem().string() : model.name);
  if (r.init) s.emplace_back("Denoising strength", number_text(r.strength));
  if (r.sampler_options.karras.value_or(false)) s.emplace_back("Schedule type", "Karras");
  const bool ddim = r.sampler == "ddim";  // whose eta has a name and a default of its own there
  if (const auto eta = r.sampler_options.eta; eta && *eta != (ddim ? 0 : 1))
    s.emplace_back(ddim ? "Eta DDIM" : "Eta", number_text(*eta));
  std::string hashes;
  for (const LoraUse& use : r.loras)
    hashes += (hashes.empty() ? "" : ", ") + lora_name(use.file) + ": " + use.data_sha256.substr(0, kLoraDigits);
  if (!hashes.empty()) s.emplace_back("Lora hashes", hashes);
  if (r.clip_skip) s.emplace_back("Clip skip", std::to_string(r.clip_skip + 1));  // there 1 means all layers
  s.emplace_back("RNG", "CPU");
  s.emplace_back("Version", "tenon " + by.version);
  return s;
}

// The prompt in the web UI's form, in which LoRAs are part of it.
std::string prompt_with_loras(const ImageRequest& r, size_t image) {
  std::string out = r.prompt_of(image);
  for (const LoraUse& use : r.loras)
    out += (out.empty() ? "<lora:" : " <lora:") + lora_name(use.file) + ":" + number_text(use.weight) + ">";
  return out;
}

}  // namespace

std::string hash_of_files(std::span<const fs::path> files) {
  if (files.empty()) return {};
  HashCache cache;
  if (files.size() == 1) return cache.of(files.front());
  std::string list;
  for (const fs::path& file : files) {
    check_stop();
    list += cache.of(file) + "\n";
  }
  return sha256_hex(std::as_bytes(std::span(list)));
}

ModelText model_text(const ImageGenerator& model) { return {model.name(), hash_of_files(model.files())}; }

ordered_json picture_json(const ImageResult& result, size_t i) {
  const ImageRequest& r = result.request;
  ordered_json out{
      {"seed", result.seeds[i]},  {"rng", "cpu"},
      {"prompt", r.prompt_of(i)}, {"negative_prompt", r.negative},
      {"width", r.width},         {"height", r.height},
      {"steps", r.steps},         {"cfg_scale", r.cfg_scale},
      {"sampler", r.sampler},     {"schedule", r.sampler_options.karras.value_or(false) ? "karras" : "discrete"}};
  if (r.sampler_options.eta) out["eta"] = *r.sampler_options.eta;
  if (r.sampler_options.flow_shift) out["flow_shift"] = *r.sampler_options.flow_shift;
  if (r.cfg_normalization > 0) out["cfg_normalization"] = r.cfg_normalization;
  if (r.cfg_truncation < 1) out["cfg_truncation"] = r.cfg_truncation;
  if (r.clip_skip) out["clip_skip"] = r.clip_skip;
  for (const LoraUse& use : r.loras) {
    out["loras"].push_back(
        {{"file", as_utf8(use.file.filename().native())}, {"weight", use.weight}, {"sha256", use.sha256}});
    if (use.partial) out["loras"].back()["partial"] = true;
  }
  if (!r.loras.empty() && result.lora_apply == LoraApply::Side) out["lora_apply"] = "side";
  if (!result.fusion) out["fusion"] = false;
  if (result.batch_invariant) out["deterministic"] = "batch";
  if (!r.latents.empty()) {  // the seed alone does not give this picture again
    const size_t each = r.latents.size() / static_cast<size_t>(r.batch);
    out["latents_sha256"] = sha256_hex(std::as_bytes(std::span(r.latents).subspan(i * each, each)));
  }
  out.update({{"timesteps", result.timesteps}, {"sigmas", result.sigmas}, {"type", result.type.text()}});
  if (r.init) out.update({{"strength", r.strength}, {"init_sha256", r.init->sha256}});
  if (r.init && r.init->scaled_from)
    out.update({{"init_size", {r.init->scaled_from->first, r.init->scaled_from->second}},
                {"resize_mode", name_of(r.resize_mode)}});
  out["pixels_sha256"] = pixel_hash(result.images[i]);
  return out;
}

ImageText picture_text(const ImageResult& result, size_t i, const ModelText& model, const MadeBy& by) {
  ordered_json about{{"tenon", by.version}};
  if (!by.commit.empty()) about["commit"] = by.commit;
  about.update({{"model", model.name}, {"model_sha256", model.sha256}});
  about.update(picture_json(result, i));
  const ImageRequest& r = result.request;
  return {{kParameters, a1111_parameters(prompt_with_loras(r, i), r.negative, a1111_settings(result, i, model, by))},
          {"tenon", about.dump()}};
}

}  // namespace tenon
