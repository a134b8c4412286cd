#include "tenon/pipelines/families/image_encoder/image_encoder.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/image.h"
#include "tenon/io/json.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/component_weights.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/random_weights.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
using nlohmann::json;

constexpr const char *kSettings = "config.json", *kPreprocessor = "preprocessor_config.json";
constexpr int64_t kHubShortSide = 256, kHubCrop = 224;  // used in evaluations by transformers and the original

// The weight file of a folder; empty if there is none or more than one.
fs::path weight_file(const fs::path& path) {
  if (!folder_exists(path)) return path;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (file_exists(path / name)) return path / name;
  std::vector<fs::path> found;
  for (const fs::path& entry : list_folder(path))
    if (entry.extension() == ".safetensors") found.push_back(entry);
  return found.size() == 1 ? found[0] : fs::path();
}

WeightShapes shapes_in(const WeightSet& set) {
  WeightShapes out;
  for (const auto& [name, view] : set.tensors) out.emplace(name, view.shape);
  return out;
}

const VitPreset& preset(const std::string& name) {
  std::vector<std::string> known;
  for (const VitPreset& p : vit_presets()) {
    if (p.name == name) return p;
    known.push_back(p.name);
  }
  refuse_preset(name, known);
}

// Three numbers from `low` to `high`, or the fallback.
std::array<double, 3> three_numbers(ConfigReader& r, const json& settings, const char* key,
                                    std::array<double, 3> fallback, double low, double high) {
  if (!r.has(key)) return fallback;
  const json& v = settings[key];
  const bool good = v.is_array() && v.size() == 3 && std::ranges::all_of(v, [&](const json& x) {
                      return x.is_number() && x.get<double>() >= low && x.get<double>() <= high;
                    });
  if (!good) r.refuse(key, "three numbers from " + number_text(low) + " to " + number_text(high));
  return {v[0], v[1], v[2]};
}

bool is_side(const json& v) {
  return v.is_number_unsigned() && v.get<uint64_t>() > 0 && v.get<uint64_t>() <= static_cast<uint64_t>(kMaxImageSide);
}
std::string sides() { return "pixels from 1 to " + std::to_string(kMaxImageSide); }

// A side in pixels, from 37 or an object whose only keys are `keys`, all with the same number.
int64_t side_of(ConfigReader& r, const json& settings, const char* key, const std::vector<std::string>& keys,
                int64_t fallback) {
  if (!r.has(key)) return fallback;
  const json& v = settings[key];
  if (is_side(v)) return v.get<int64_t>();
  const std::string expected = keys.size() == 1 ? "only " + keys[0] : "equal " + keys[0] + " and " + keys[1];
  bool good = v.is_object() && v.contains(keys[0]) && is_side(v[keys[0]]);
  for (const std::string& inner : keys) good = good && v.contains(inner) && v[inner] == v[keys[0]];
  for (const auto& [inner, value] : v.items())
    good = good && (value.is_null() || std::ranges::find(keys, inner) != keys.end());
  if (!good) r.refuse(key, expected + ", " + sides());
  return v[keys[0]].get<int64_t>();
}

constexpr double kMinFactor = 1e-6, kSameFactor = 1e-9, kMinShare = 0.01, kMinDeviation = 1e-6, kMaxColour = 1e6;

// Like expect(), but null means absent.
void expect_if_given(ConfigReader& r, const char* key, std::initializer_list<json> allowed) {
  if (r.has(key)) r.expect(key, allowed);
}

void read_normalisation(ImagePreprocessing& p, ConfigReader& r, const json& settings, const char* mean,
                        const char* deviation) {
  p.mean = three_numbers(r, settings, mean, p.mean, -kMaxColour, kMaxColour);
  p.deviation = three_numbers(r, settings, deviation, p.deviation, kMinDeviation, kMaxColour);
}

void read_timm(ImagePreprocessing& p, const json& cfg, const std::string& where) {
  ConfigReader r(cfg, where + " pretrained_cfg");
  if (r.has("input_size")) {
    const json& size = cfg["input_size"];
    const bool square = size.is_array() && size.size() == 3 && is_side(size[2]) && size[1] == size[2];
    if (!square) r.refuse("input_size", "3 channels and a square, " + sides());
    p.crop = size[2].get<int64_t>();
  }
  expect_if_given(r, "interpolation", {"bicubic"});
  expect_if_given(r, "crop_mode", {"center"});
  const double share = r.has("crop_pct") ? r.number("crop_pct", 1, kMinShare, 1) : 1;
  p.short_side = static_cast<int64_t>(std::floor(static_cast<double>(p.crop) / share));
  read_normalisation(p, r, cfg, "mean", "std");
}

// Values are x / 255 here and x * rescale_factor there, so mean and deviation are scaled by what is between the two.
void read_values(ImagePreprocessing& p, ConfigReader& r, const json& settings) {
  const auto on = [&](const char* key) { return !r.has(key) || r.flag(key, true); };
  read_normalisation(p, r, settings, "image_mean", "image_std");
  double factor = 1.0 / 255;
  if (r.has("rescale_factor")) factor = r.number("rescale_factor", factor, kMinFactor, kMaxColour);
  if (!on("do_rescale")) factor = 1;
  if (!on("do_normalize")) {
    p.mean.fill(0);
    p.deviation.fill(1);
  }
  const double unit = factor * 255;
  if (std::abs(unit - 1) < kSameFactor) return;
  for (size_t i = 0; i < p.mean.size(); ++i) {
    p.mean[i] /= unit;
    p.deviation[i] /= unit;
  }
}

void read_hugging_face(ImagePreprocessing& p, const json& settings, const std::string& where) {
  ConfigReader r(settings, where);
  // Others have other steps, and other defaults for the keys that are absent.
  expect_if_given(r, "image_processor_type",
                  {"BitImageProcessor", "BitImageProcessorFast", "BitImageProcessorPil", "CLIPImageProcessor",
                   "CLIPImageProcessorFast", "CLIPImageProcessorPil"});
  for (const char* step : {"do_resize", "do_center_crop"}) expect_if_given(r, step, {true});
  constexpr int kBicubic = 3;  // of Pillow
  expect_if_given(r, "resample", {kBicubic});
  p.short_side = side_of(r, settings, "size", {"shortest_edge"}, p.short_side);
  p.crop = side_of(r, settings, "crop_size", {"height", "width"}, p.crop);
  read_values(p, r, settings);
}

}  // namespace

bool ImageEncoder::reads(const fs::path& path) {
  const fs::path file = weight_file(path);
  if (file.empty() || (file.extension() != ".safetensors" && file.extension() != ".json")) return false;
  try {
    // Every layout has a token of that name; this avoids reading large checkpoints of other kinds twice.
    if (file.extension() == ".safetensors" && !SafetensorsFile::mentions(file, "cls_token")) return false;
    return is_vit(shapes_in(open_weights(file)));
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Cancelled) throw;
    return false;  // opening it reports the error
  }
}

std::shared_ptr<const ImageEncoder> ImageEncoder::open(const std::string& spec, uint64_t random_seed) {
  auto e = std::make_shared<ImageEncoder>();
  e->random_seed_ = random_seed;
  if (spec.starts_with(kRandomModel)) {
    e->name_ = spec;
    e->config_ = preset(spec.substr(kRandomModel.size())).config;
    return e;
  }
  const fs::path path = find_model(spec), file = weight_file(path);
  TENON_CHECK(Model, !file.empty(), path.string())
      << "has no weights of an image encoder; looked for model.safetensors, model.safetensors.index.json and one "
         "*.safetensors";
  e->name_ = model_name(path);
  e->stored_ = open_weights(file);
  e->folder_ = file.parent_path();
  e->settings_ = read_json_object(e->folder_ / kSettings);
  e->preprocessor_ = read_json_object(e->folder_ / kPreprocessor);
  const WeightShapes shapes = shapes_in(*e->stored_);
  e->config_ = detect_vit(shapes, e->settings_, path.string());
  WeightShapes named;
  for (const auto& [stored, view] : e->stored_->tensors)
    if (const std::string timm = vit_name(stored); !timm.empty()) {
      e->tensors_.emplace(timm, view);
      named.emplace(timm, view.shape);
    }
  const WeightShapes expected = e->shapes();
  require_weights(check_weights(expected, named), path.string());
  require_floats(expected, e->tensors_, path.string());
  return e;
}

ImagePreprocessing ImageEncoder::preprocessing(const std::string& kind) const {
  const bool own_timm = config_.source == VitSource::Timm;
  TENON_CHECK(Usage, kind.empty() || kind == "timm" || kind == "hf", "--preprocessing")
      << "'" << shown(kind) << "' is not known; expected timm or hf";
  ImagePreprocessing p;
  p.kind = !kind.empty() ? kind : own_timm ? "timm" : "hf";
  if (p.kind == "timm") {
    p.short_side = p.crop = config_.native_side();
    if (settings_.is_object() && settings_.contains("pretrained_cfg"))
      read_timm(p, settings_["pretrained_cfg"], (folder_ / kSettings).string());
  } else {
    p.short_side = kHubShortSide;
    p.crop = kHubCrop;
    if (preprocessor_.is_object()) read_hugging_face(p, preprocessor_, (folder_ / kPreprocessor).string());
  }
  return p;
}

std::unique_ptr<WeightSource> ImageEncoder::weights() const {
  if (!stored_) return random_weights(shapes(), random_seed_);
  return tensor_weights(tensors_);
}

void check_side(const VitConfig& c, const std::string& what, int64_t side) {
  TENON_CHECK(Usage, side > 0 && side <= kMaxImageSide, what)
      << side << " is outside " << c.patch << ".." << kMaxImageSide;
  const int64_t nearest = std::max<int64_t>((side + c.patch / 2) / c.patch * c.patch, c.patch);
  TENON_CHECK(Usage, side % c.patch == 0, what)
      << side << " is not a multiple of the patch size " << c.patch << "; the nearest is " << nearest;
}

std::vector<NamedNetwork> networks_of(const ImageEncoder& encoder) { return {{"image_encoder", encoder.shapes()}}; }

Plan plan_image_encoder(const VitConfig& c, int64_t batch, int64_t height, int64_t width,
                        const NetworkOptions& options) {
  check_side(c, "height", height);
  check_side(c, "width", width);
  Graph g;
  return plan_one("image_encoder", "tokens", vit(g, c, batch, height, width, options.precision), options);
}

}  // namespace tenon
