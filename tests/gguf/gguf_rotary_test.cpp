// What metadata and tensors of GGUF files say of scaled rotary positions, in the words of config.json.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tenon/core/error.h"
#include "tenon/io/gguf_checkpoint.h"
#include "tests/gguf/gguf_bytes.h"

namespace tenon {
namespace {
using gguf_test::GgufBytes;
using nlohmann::json;
using Numbers = std::vector<std::pair<std::string, float>>;

// A head of 16, theta 5e5, and a tensor of `factors` if there are any.
GgufBytes file_with(const std::string& architecture, const std::string& type, const Numbers& numbers,
                    const std::vector<float>& factors = {}) {
  GgufBytes file;
  file.header(factors.empty() ? 1 : 2, 8 + numbers.size() + (type.empty() ? 0 : 1));
  file.string_key("general.architecture", architecture);
  for (const auto& [name, number] : {std::pair{"embedding_length", 64},
                                     {"block_count", 1},
                                     {"feed_forward_length", 8},
                                     {"attention.head_count", 4},
                                     {"context_length", 128}})
    file.key(architecture + "." + name, GgufType::U32).number(static_cast<uint32_t>(number));
  file.key(architecture + ".attention.layer_norm_rms_epsilon", GgufType::F32).number(1e-5F);
  file.key(architecture + ".rope.freq_base", GgufType::F32).number(5e5F);
  if (!type.empty()) file.string_key(architecture + ".rope.scaling.type", type);
  for (const auto& [key, number] : numbers) {
    const std::string name = architecture + ".rope.scaling." + key;
    if (key == "original_context_length")
      file.key(name, GgufType::U32).number(static_cast<uint32_t>(number));
    else
      file.key(name, GgufType::F32).number(number);
  }
  file.tensor("token_embd.weight", {64, 2}, 0, 0);
  if (!factors.empty()) file.tensor("rope_freqs.weight", {factors.size()}, 0, 512);
  file.data(512);
  for (const float f : factors) file.number(f);
  return file;
}

json scaling_of(const GgufBytes& file) { return gguf_config(file.read()).value("rope_scaling", json()); }

// As llama.cpp's converter computes them for Llama 3.1: the fifth pair is between fast and slow.
const std::vector<float> kLlama31 = {1, 1, 1, 1, 2.6945300F, 8, 8, 8};

TEST(GgufRotary, FactorsOfLlama) {
  const GgufBytes file = file_with("llama", "", {}, kLlama31);
  const json want = {{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(scaling_of(file), want);
  EXPECT_TRUE(gguf_checkpoint(file.read()).unexpected.empty());

  std::vector<float> between = kLlama31, odd = kLlama31, huge = kLlama31;
  between[4] *= 1.001F;
  odd[1] = NAN;
  huge[7] = std::numeric_limits<float>::infinity();
  for (const auto& others : {between, odd, huge, std::vector<float>{0}}) {
    const GgufBytes unknown = file_with("llama", "", {}, others);
    EXPECT_TRUE(scaling_of(unknown).is_null());
    EXPECT_EQ(gguf_checkpoint(unknown.read()).unexpected, std::vector<std::string>{"rope_freqs.weight"});
  }
  // Only this architecture reads them.
  EXPECT_EQ(gguf_checkpoint(file_with("qwen2", "", {}, kLlama31).read()).unexpected.size(), 1U);
}

TEST(GgufRotary, Yarn) {
  const json want = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  const Numbers given = {{"factor", 4}, {"original_context_length", 32}, {"yarn_beta_fast", 32}, {"yarn_beta_slow", 1}};
  for (const char* architecture : {"llama", "qwen2", "qwen3"})
    EXPECT_EQ(scaling_of(file_with(architecture, "yarn", given)), want) << architecture;
  const json louder = scaling_of(file_with("llama", "yarn", {{"factor", 4}, {"attn_factor", 1.5}}));
  EXPECT_NEAR(louder["attention_factor"].get<double>(), 1.5 * (0.1 * std::log(4.0) + 1), 1e-12);
}

TEST(GgufRotary, WhatIsRefusedNamesTheKey) {
  const auto refused = [](const std::string& part, const std::string& type, const Numbers& numbers,
                          const std::vector<float>& factors = {}) {
    try {
      static_cast<void>(scaling_of(file_with("llama", type, numbers, factors)));
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused("has no metadata 'llama.rope.scaling.factor'", "yarn", {});
  for (const float bad : {0.0F, -4.0F, 0.5F, NAN, std::numeric_limits<float>::infinity()}) {
    refused("llama.rope.scaling.factor: expected a number of at least 1", "yarn", {{"factor", bad}});
    if (bad != 0.5F) refused("llama.rope.scaling.attn_factor", "yarn", {{"factor", 4}, {"attn_factor", bad}});
  }
  for (const char* key :
       {"yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier", "yarn_beta_fast", "yarn_beta_slow"})
    refused(std::string("llama.rope.scaling.") + key + ": expected", "yarn", {{"factor", 4}, {key, 0.5}});
  refused("llama.rope.scaling.attn_factor: expected 1, found 1.5", "", {{"attn_factor", 1.5}});
  refused("llama.rope.scaling.type is 'linear' beside 'rope_freqs.weight'", "linear", {{"factor", 2}}, kLlama31);
  refused("'rope_freqs.weight' has 4 factors, expected one for each two of the 16", "", {}, {1, 1, 1, 1});
}

}  // namespace
}  // namespace tenon
