#include "tenon/io/gguf_rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/io/gguf_blocks.h"

namespace tenon {
namespace {
using nlohmann::json;

// Every published model has these two, and a power of two as its first length; files do not hold them.
constexpr double kSlow = 1, kFast = 4;
constexpr int64_t kShortest = 1 << 9, kLongest = 1 << 20;

std::string front(const GgufFile& file) { return file.architecture() + ".rope."; }

double base(const GgufFile& file) { return file.number(front(file) + "freq_base").value_or(10000.0); }

// Llama's factor of pair i among `pairs`: 1 for fast ones, `most` for slow ones.
double llama3_factor(double theta, double most, double length, size_t i, size_t pairs) {
  const double speed = std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs));
  const double turns = length * speed / (2 * std::numbers::pi);
  const double kept = std::clamp((turns - kSlow) / (kFast - kSlow), 0.0, 1.0);
  return 1 / (kept + (1 - kept) / most);
}

// A setting that must be absent or neutral.
void expect_neutral(const GgufFile& file, const std::string& key, double neutral) {
  const double value = file.number(front(file) + "scaling." + key).value_or(neutral);
  TENON_CHECK(Model, value == neutral, file.name())
      << front(file) << "scaling." << key << ": expected " << neutral << ", found " << value;
}

double yarn_factor(const GgufFile& file, const std::optional<double>& given) {
  TENON_CHECK(Model, given, file.name()) << "has no metadata '" << front(file) << "scaling.factor'";
  TENON_CHECK(Model, *given >= 1 && *given <= 1e9, file.name())
      << front(file) << "scaling.factor: expected a number of at least 1, found " << *given;
  return *given;
}

// llama.cpp's formula is that of config.json, where the amplitude also has YaRN's own part.
json yarn(const GgufFile& file, const std::optional<double>& given, double amplitude) {
  const std::string scaling = front(file) + "scaling.";
  const double factor = yarn_factor(file, given);
  // Of these architectures llama.cpp does not read all of them, so that a file with others means two things.
  for (const auto& [key, neutral] : {std::pair("yarn_ext_factor", 1.0),
                                     {"yarn_attn_factor", 1.0},
                                     {"yarn_log_multiplier", 0.0},
                                     {"yarn_beta_fast", 32.0},
                                     {"yarn_beta_slow", 1.0}})
    expect_neutral(file, key, neutral);
  json out = {{"rope_type", "yarn"}, {"factor", factor}};
  if (const auto length = file.integer(scaling + "original_context_length"); length && *length > 0)
    out["original_max_position_embeddings"] = *length;
  if (amplitude != 1) out["attention_factor"] = amplitude * (0.1 * std::log(factor) + 1);
  return out;
}

}  // namespace

json gguf_rotary_factors(const GgufFile& file) {
  const auto found = file.tensors().find(kGgufRotaryFactors);
  if (found == file.tensors().end() || file.architecture() != "llama" || found->second.shape.rank() != 1) return {};
  const auto pairs = static_cast<size_t>(found->second.shape[0]);
  std::vector<float> factors(pairs);
  if (pairs == 0 || found->second.type != BlockType::F32) return {};
  dequantise(found->second.type, found->second.data, factors);
  // The slowest pair tells: there is none that turns slower.
  const double most = factors.back();
  if (!(most >= 1 && most <= 1e6)) return {};
  for (int64_t length = kLongest; length >= kShortest; length /= 2) {
    size_t i = 0;
    const auto fits = [&](double factor) {
      const double want = llama3_factor(base(file), most, static_cast<double>(length), i++, pairs);
      return std::abs(factor - want) <= 1e-5 * want;
    };
    if (std::ranges::all_of(factors, fits))
      return {{"rope_type", "llama3"},
              {"factor", most},
              {"low_freq_factor", kSlow},
              {"high_freq_factor", kFast},
              {"original_max_position_embeddings", length}};
  }
  return {};
}

json gguf_rope_scaling(const GgufFile& file, int64_t width) {
  const std::string scaling = front(file) + "scaling.";
  const std::string type(file.string(scaling + "type").value_or("linear"));
  auto factor = file.number(scaling + "factor");
  if (!factor) factor = file.number(front(file) + "scale_linear");  // from older files
  const double amplitude = file.number(scaling + "attn_factor").value_or(1);
  const json factors = gguf_rotary_factors(file);
  TENON_CHECK(Model, factors.is_null() || file.at(kGgufRotaryFactors).shape[0] * 2 == width, file.name())
      << "'" << kGgufRotaryFactors << "' has " << file.at(kGgufRotaryFactors).shape[0]
      << " factors, expected one for each two of the " << width << " numbers of a head";
  json out;
  if (type == "yarn") {
    TENON_CHECK(Model, amplitude > 0 && amplitude < 1e9, file.name())
        << scaling << "attn_factor: expected a positive number, found " << amplitude;
    out = yarn(file, factor, amplitude);
  } else {
    expect_neutral(file, "attn_factor", 1);
    const bool linear = type == "linear";  // as in llama.cpp, which takes 0 as 1
    if (linear ? factor.value_or(1) != 1 && *factor != 0 : type != "none")
      out = {{"rope_type", type}, {"factor", factor.value_or(1.0)}};
  }
  TENON_CHECK(Model, out.is_null() || factors.is_null(), file.name())
      << scaling << "type is '" << type << "' beside '" << kGgufRotaryFactors << "'; only one of them is supported";
  return factors.is_null() ? out : factors;
}

}  // namespace tenon
