#include "tenon/pipelines/generation_config.h"

#include <limits>

#include "tenon/models/config_reader.h"

namespace tenon {
namespace {
using nlohmann::json;

// transformers' default, for models that draw and do not set it.
constexpr int64_t kTopK = 50;

// Whether a setting is as transformers' default, which changes nothing.
bool is_neutral(const json& value, double neutral) {
  if (value.is_null() || ((value.is_array() || value.is_object()) && value.empty())) return true;
  return value.is_number() ? value.get<double>() == neutral : value.is_boolean() && !value.get<bool>();
}

}  // namespace

Sampling read_sampling(const json& config, const std::string& where) {
  Sampling out;
  ConfigReader r(config, where);
  const auto given = [&](const char* key) { return r.has(key); };
  out.draw = given("do_sample") && r.flag("do_sample", false);
  if (out.draw) out.top_k = kTopK;
  // Greedy decoding reads none of these: a value that is out of range is as good as none.
  const auto number = [&](const char* key, double& value, double lo, double hi) {
    constexpr double kAny = std::numeric_limits<double>::max();
    if (!given(key)) return;
    const double found = r.number(key, value, out.draw ? lo : -kAny, out.draw ? hi : kAny);
    if (found >= lo && found <= hi) value = found;
  };
  number("temperature", out.temperature, 0, 1e6);
  if (given("repetition_penalty")) out.repetition_penalty = r.number("repetition_penalty", 1, 1e-6, 1e6);
  if (out.temperature < kLeastDivisor) {  // 0 is commonly written to mean greedy
    out.draw = false;
    out.temperature = 1;
  }
  if (given("top_k")) {
    constexpr int64_t kMost = int64_t{1} << 24, kAny = std::numeric_limits<int64_t>::max();
    const int64_t found = r.integer("top_k", 0, out.draw ? 0 : -kAny, out.draw ? kMost : kAny);
    if (found >= 0 && found <= kMost) out.top_k = found;
  }
  number("min_p", out.min_p, 0, 1);
  double top_p = 1;
  number("top_p", top_p, 0, 1);
  if (top_p > 0)
    out.top_p = top_p;
  else if (out.draw)
    r.refuse("top_p", "a number above 0");
  return out;
}

std::vector<std::string> unfollowed_settings(const json& config) {
  struct Setting {
    const char* key;
    double neutral;           // no number is if this is NaN
    bool draws_only = false;  // greedy decoding does not read it
  };
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  constexpr Setting kSettings[] = {{"bad_words_ids", kNone},
                                   {"begin_suppress_tokens", kNone},
                                   {"dola_layers", kNone},
                                   {"encoder_no_repeat_ngram_size", 0},
                                   {"encoder_repetition_penalty", 1},
                                   {"epsilon_cutoff", 0, true},
                                   {"eta_cutoff", 0, true},
                                   {"exponential_decay_length_penalty", kNone},
                                   {"force_words_ids", kNone},
                                   {"forced_bos_token_id", kNone},
                                   {"forced_decoder_ids", kNone},
                                   {"forced_eos_token_id", kNone},
                                   {"guidance_scale", 1},
                                   {"min_length", 0},
                                   {"min_new_tokens", 0},
                                   {"no_repeat_ngram_size", 0},
                                   {"num_beams", 1},
                                   {"penalty_alpha", 0},
                                   {"sequence_bias", kNone},
                                   {"stop_strings", kNone},
                                   {"suppress_tokens", kNone},
                                   {"token_healing", kNone},
                                   {"top_h", kNone, true},
                                   {"typical_p", 1, true},
                                   {"watermarking_config", kNone}};
  std::vector<std::string> out;
  const auto draw = config.find("do_sample");
  const bool draws = draw != config.end() && *draw == true;
  for (const Setting& s : kSettings) {
    const auto found = config.find(s.key);
    if (found != config.end() && !is_neutral(*found, s.neutral) && (draws || !s.draws_only)) out.emplace_back(s.key);
  }
  return out;
}

}  // namespace tenon
