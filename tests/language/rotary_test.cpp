// Scaled rotary positions against transformers (tools/fixtures/rotary.py), in every network that has a table of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/models/decoder.h"
#include "tenon/nn/linear.h"
#include "tenon/pipelines/networks.h"
#include "tenon/runtime/executable.h"
#include "tests/language/language_fixtures.h"
#include "tests/support/close.h"

namespace tenon {
namespace {
using namespace language_test;
using nlohmann::json;

const json& rotary_cases() {
  static const json all = json::parse(std::ifstream(fixture("rotary.json")));
  return all["cases"];
}

class ScaledRotary : public testing::TestWithParam<size_t> {
 protected:
  ScaledRotary() {
    write_model(c_, folder_);
    model_ = LanguageModel::open(folder_.path().string());
  }
  // The recorded logits of the last of `count` tokens.
  void expect_recorded(const std::vector<float>& logits, size_t count, const char* what) const {
    const auto want = c_["logits"].get<std::vector<float>>();
    ASSERT_EQ(logits.size(), count * static_cast<size_t>(model_->config().vocabulary));
    const auto row = logits.end() - static_cast<std::ptrdiff_t>(model_->config().vocabulary);
    const std::vector<float> got(row, row + static_cast<std::ptrdiff_t>(want.size()));
    EXPECT_TRUE(close_to_largest(got, want, 1e-4 / 4)) << what;
  }

  const json& c_ = rotary_cases()[GetParam()];
  const Folder folder_;
  std::shared_ptr<const LanguageModel> model_;
  std::vector<int32_t> prompt_ = c_["prompt"].get<std::vector<int32_t>>();
};

// Runs of 45 tokens, then of one: the position is an input.
TEST_P(ScaledRotary, OverACache) {
  for (const int64_t chunk : {45, 1}) {
    Executable e(plan_all_logits(model_->config(), chunk, 128, {.precision = nn::kF32}), make_backend("cpu"),
                 *model_->weights());
    for (int32_t at = 0; at < static_cast<int32_t>(prompt_.size()); at += static_cast<int32_t>(chunk)) {
      e.set("tokens", HostView{DType::I32, {1, chunk}, prompt_.data() + at});
      e.set("position", HostView{DType::I32, {1}, &at});
      e.run_all();
    }
    expect_recorded(e.get("logits"), static_cast<size_t>(chunk), chunk == 1 ? "one by one" : "in two runs");
  }
}

// The network that a loss is made of.
TEST_P(ScaledRotary, OfWholeTexts) {
  Graph g;
  const auto count = static_cast<int64_t>(prompt_.size());
  const DecoderHidden h = decoder_hidden(model_->config(), input(g, "tokens", DType::I32, {1, count}), nn::kF32);
  Executable e(make_plan(std::vector<Result>{{"logits", nn::linear(h.hidden, h.head)}}), make_backend("cpu"),
               *model_->weights());
  e.set("tokens", HostView{DType::I32, {1, count}, prompt_.data()});
  e.run_all();
  expect_recorded(e.get("logits"), prompt_.size(), "whole");
}

std::string name_of(const testing::TestParamInfo<size_t>& each) {
  std::string name = rotary_cases()[each.param]["name"];
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, ScaledRotary, testing::Range(size_t{0}, rotary_cases().size()), name_of);

TEST(RotarySettings, AreRefusedByName) {
  const auto expect_refused = [](const json& scaling, const std::string& part) {
    json config = rotary_cases()[0]["config"];
    config["rope_scaling"] = scaling;
    try {
      static_cast<void>(read_decoder_config(config, "config.json"));
      ADD_FAILURE() << scaling;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model);
      EXPECT_NE(std::string(e.what()).find("[config.json rope_scaling] " + part), std::string::npos) << e.what();
    }
  };
  for (const char* type : {"dynamic", "longrope", "proportional", "mrope"})
    for (const char* key : {"rope_type", "type"})
      expect_refused({{key, type}, {"factor", 2.0}}, "'" + std::string(key) + "' is \"" + type + "\", expected");
  expect_refused({{"rope_type", nullptr}}, "'rope_type' is null");
  const json llama3 = rotary_cases()[0]["config"]["rope_scaling"];
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    for (const json& bad : {json(0), json(-1.0), json("8"), json(nullptr), json(1e300)}) {
      json changed = llama3;
      changed[key] = bad;
      expect_refused(changed, "'" + std::string(key) + "' is ");
    }
    json less = llama3;
    less.erase(key);
    if (std::string(key) != "original_max_position_embeddings") expect_refused(less, "'" + std::string(key) + "' is ");
  }
  for (const char* type : {"linear", "yarn"}) {
    expect_refused({{"type", type}}, "'factor' is (absent)");
    expect_refused({{"type", type}, {"factor", 0}}, "'factor' is 0");
    expect_refused({{"type", type}, {"factor", 2}, {"partial_rotary_factor", 0.5}}, "'partial_rotary_factor' is 0.5");
  }
  json same = llama3;
  same["high_freq_factor"] = same["low_freq_factor"];
  expect_refused(same, "'high_freq_factor' is 1.0, expected more than the low_freq_factor");
  for (const auto& [key, bad] : {std::pair("attention_factor", json(0)),
                                 {"attention_factor", -1},
                                 {"truncate", 1},
                                 {"beta_fast", -1},
                                 {"beta_slow", "1"},
                                 {"mscale", -0.5},
                                 {"rope_theta", 1}})
    expect_refused({{"type", "yarn"}, {"factor", 2}, {key, bad}}, "'" + std::string(key) + "' is ");
}

}  // namespace
}  // namespace tenon
