// Language models in GGUF files: what their tensors and metadata say about the network and the end of a text.
#include <gtest/gtest.h>

#include <functional>

#include "tenon/core/error.h"
#include "tenon/models/decoder.h"
#include "tenon/pipelines/language_model.h"
#include "tenon/pipelines/model_report.h"
#include "tests/gguf/gguf_bytes.h"
#include "tests/language/language_fixtures.h"

namespace tenon {
namespace {
using Names = std::vector<std::string>;
using Keys = std::vector<std::pair<std::string, uint32_t>>;

const Names kQkv = {"attn_q", "attn_k", "attn_v"};

enum class Head { Given, Absent };

// A model of one layer, 8 wide, in which `biased` layers have a bias. `head`: whether the file has a width of heads.
std::shared_ptr<const LanguageModel> open(const std::string& architecture, const Names& biased, const Keys& more = {},
                                          const std::function<void(gguf_test::GgufBytes&)>& last = {},
                                          Head head = Head::Given) {
  Keys keys = {{"embedding_length", 8},
               {"block_count", 1},
               {"feed_forward_length", 16},
               {"attention.head_count", 2},
               {"context_length", 32}};
  for (auto& [key, value] : keys) key = architecture + "." + key;
  keys.insert(keys.end(), more.begin(), more.end());
  if (head == Head::Given) keys.emplace_back(architecture + ".attention.key_length", 4);
  std::vector<std::pair<std::string, std::vector<uint64_t>>> tensors = {
      {"token_embd.weight", {8, 20}},   {"output_norm.weight", {8}},          {"blk.0.attn_norm.weight", {8}},
      {"blk.0.ffn_norm.weight", {8}},   {"blk.0.attn_q.weight", {8, 8}},      {"blk.0.attn_k.weight", {8, 8}},
      {"blk.0.attn_v.weight", {8, 8}},  {"blk.0.attn_output.weight", {8, 8}}, {"blk.0.ffn_gate.weight", {8, 16}},
      {"blk.0.ffn_up.weight", {8, 16}}, {"blk.0.ffn_down.weight", {16, 8}}};
  if (architecture == "qwen3")
    for (const char* norm : {"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"}) tensors.push_back({norm, {4}});
  for (const std::string& layer : biased)
    tensors.push_back({"blk.0." + layer + ".bias", {layer == "ffn_gate" || layer == "ffn_up" ? 16U : 8U}});
  gguf_test::GgufBytes file;
  file.header(tensors.size(), keys.size() + (last ? 3 : 2)).string_key("general.architecture", architecture);
  for (const auto& [key, value] : keys) file.key(key, GgufType::U32).number(value);
  file.key(architecture + ".attention.layer_norm_rms_epsilon", GgufType::F32).number(1e-5F);
  if (last) last(file);
  uint64_t at = 0;
  for (const auto& [name, shape] : tensors) {
    file.tensor(name, shape, 0, at);
    uint64_t size = 4;
    for (const uint64_t extent : shape) size *= extent;
    at += (size + 31) / 32 * 32;
  }
  const language_test::Folder folder;
  folder.write("m.gguf", file.data(at).bytes());
  return LanguageModel::open((folder.path() / "m.gguf").string());
}

// The configuration that is written beside trained weights describes the same network.
TEST(LanguageGguf, BiasesAndTheConfigurationThatIsSaved) {
  Names attention = kQkv, all = kQkv;
  attention.emplace_back("attn_output");
  for (const char* layer : {"attn_output", "ffn_gate", "ffn_up", "ffn_down"}) all.emplace_back(layer);
  for (const auto& [architecture, biased, saved] : {std::tuple("llama", Names(), "llama"),
                                                    {"llama", kQkv, "qwen2"},
                                                    {"llama", attention, "llama"},
                                                    {"llama", all, "llama"},
                                                    {"qwen2", kQkv, "qwen2"},
                                                    {"qwen2", Names(), "llama"},
                                                    {"qwen3", Names(), "qwen3"},
                                                    {"qwen3", attention, "qwen3"}}) {
    const auto model = open(architecture, biased);
    EXPECT_EQ(model->config().family, architecture);
    EXPECT_EQ(model->shapes().size(), (std::string(architecture) == "qwen3" ? 13 : 11) + biased.size());
    const nlohmann::ordered_json config = model->saved_config();
    EXPECT_EQ(config["model_type"], saved) << architecture << biased.size();
    EXPECT_EQ(decoder_weights(read_decoder_config(config, "saved")), model->shapes()) << architecture << biased.size();
  }
  for (const auto& [architecture, biased] : {std::pair("qwen3", kQkv), {"llama", Names{"attn_output"}}}) {
    const auto model = open(architecture, biased);
    try {
      static_cast<void>(model->saved_config());
      ADD_FAILURE() << architecture;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("biases in only some of attention's projections"), std::string::npos)
          << e.what();
    }
  }
  EXPECT_THROW(open("llama", {"attn_q"}), Error);
  EXPECT_THROW(open("qwen3", {"ffn_gate", "ffn_up", "ffn_down"}), Error);
}

// As in llama.cpp, they share the width; config.json of Qwen3 would mean 128.
TEST(LanguageGguf, HeadsWithoutAWidth) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    const auto model = open(architecture, {}, {}, {}, Head::Absent);
    EXPECT_EQ(model->config().head_width, 4) << architecture;
    EXPECT_EQ(read_decoder_config(model->saved_config(), "saved").head_width, 4) << architecture;
  }
}

TEST(LanguageGguf, WhatWouldChangeTheResultIsRefused) {
  const auto refused = [](const char* key, const std::string& part, const auto& add) {
    try {
      open("llama", {}, {}, [&](gguf_test::GgufBytes& file) { add(file, std::string("llama.") + key); });
      ADD_FAILURE() << key;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused("attention.causal", "llama.attention.causal is false",
          [](auto& file, const std::string& key) { file.key(key, GgufType::Bool).number(uint8_t{0}); });
  refused("rope.scaling.attn_factor", "llama.rope.scaling.attn_factor: expected 1, found 2",
          [](auto& file, const std::string& key) { file.key(key, GgufType::F32).number(2.0F); });
}

// As in folders: there is no architecture to show, and nothing to compare the tensors with.
TEST(LanguageGguf, AConfigurationThatIsRefusedIsNotInspected) {
  const language_test::Folder folder;
  gguf_test::GgufBytes file;
  file.header(1, 7).string_key("general.architecture", "llama");
  for (const auto& [key, value] : Keys{{"embedding_length", 64},
                                       {"block_count", uint32_t{1} << 31},
                                       {"feed_forward_length", 16},
                                       {"attention.head_count", 2},
                                       {"context_length", 32}})
    file.key("llama." + key, GgufType::U32).number(value);
  file.key("llama.attention.layer_norm_rms_epsilon", GgufType::F32).number(1e-5F);
  folder.write("m.gguf", file.tensor("token_embd.weight", {64, 4}, 0, 0).data(1024).bytes());
  try {
    static_cast<void>(LanguageModel::inspect(folder.path() / "m.gguf"));
    ADD_FAILURE();
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_EQ(e.kind(), ErrorKind::Model);
    EXPECT_NE(what.find("m.gguf metadata (keys named as in config.json)"), std::string::npos) << what;
    EXPECT_NE(what.find("'num_hidden_layers' is 2147483648"), std::string::npos) << what;
  }
}

TEST(LanguageGguf, TokensThatEndAText) {
  const std::string front = "tokenizer.ggml.", end = "_token_id";
  const auto stops = [&](const std::vector<std::pair<const char*, uint32_t>>& ids) {
    Keys keys;
    for (const auto& [what, id] : ids) keys.emplace_back(front + what + end, id);
    return open("llama", {}, keys)->stop_ids();
  };
  EXPECT_EQ(stops({{"eos", 3}}), (std::vector<int32_t>{3}));
  EXPECT_EQ(stops({{"eos", 3}, {"eot", 7}, {"eom", 3}}), (std::vector<int32_t>{3, 7}));
  EXPECT_EQ(stops({{"eom", 9}, {"eot", 4}}), (std::vector<int32_t>{4, 9}));
  EXPECT_EQ(stops({{"eos", 3}, {"eot", 20}}), (std::vector<int32_t>{3})) << "there are 20 tokens";
}

}  // namespace
}  // namespace tenon
