// Tokens sampled from scores: which remain, how likely they are, and that a seed and a position determine them.
#include <gmock/gmock.h>

#include <map>

#include "tenon/core/draw.h"
#include "tenon/core/error.h"
#include "tenon/core/philox.h"
#include "tenon/core/utf8.h"
#include "tenon/expr/ops.h"
#include "tenon/nn/penalty.h"
#include "tenon/pipelines/language_model.h"
#include "tenon/pipelines/text_stream.h"
#include "tenon/runtime/executable.h"
#include "tests/language/language_fixtures.h"
#include "tests/support/close.h"

namespace tenon {
namespace {
using namespace language_test;
using testing::ElementsAre;
using testing::HasSubstr;

// Known answers from the generator's authors.
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(philox(0, 0), ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(philox(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

// Tokens drawn from one row of scores, each with its own number.
std::vector<SampledToken> drawn(const std::vector<float>& scores, const Sampling& s, uint64_t seed, int64_t count,
                                const std::vector<int32_t>& saw = {}, int64_t first = 0) {
  const auto tokens = static_cast<int64_t>(scores.size());
  Graph g;
  const Expr row = input(g, "scores", DType::F32, {1, tokens}), seen = input(g, "seen", DType::F32, {1, tokens});
  const Expr penalty = reshape(input(g, "penalty", DType::F32, {1}), {1, 1});
  const auto all = [&](const Expr& x) { return broadcast(x, {count, x.shape()[-1]}); };
  const Expr made = sample(all(nn::penalised(row, seen, penalty)), all(input(g, "rule", DType::F32, {1, 4})),
                           all(input(g, "seed", DType::I32, {1, 4})),
                           cast(cast(iota(g, count), DType::F32) + static_cast<double>(first), DType::I32));
  Executable e(make_plan(std::array{Result{"made", made}}), make_backend("cpu"), HostWeights());
  std::vector<float> seeds, seens(scores.size());
  for (int i = 0; i < 4; ++i) seeds.push_back(static_cast<float>(seed >> 16 * i & 0xffff));
  for (const int32_t id : saw) seens[static_cast<size_t>(id)] = 1;
  e.set("scores", scores);
  e.set("seen", seens);
  e.set("penalty", std::vector{static_cast<float>(s.repetition_penalty)});
  e.set("seed", seeds);
  e.set("rule", std::vector{static_cast<float>(s.draw ? s.temperature : 0), static_cast<float>(s.top_k),
                            static_cast<float>(s.top_p), static_cast<float>(s.min_p)});
  e.run_all();
  const std::vector<float> values = e.get("made");
  std::vector<SampledToken> out;
  for (size_t i = 0; i < values.size(); i += 2) out.push_back({static_cast<int32_t>(values[i]), values[i + 1]});
  return out;
}

class SampledLikeTransformers : public testing::TestWithParam<size_t> {};

// Every token drawn has transformers' log-probability, and frequencies match: chi-square over all tokens that
// transformers leaves, against the value that a correct sampler exceeds once in ten thousand seeds.
TEST_P(SampledLikeTransformers, ChiSquare) {
  const nlohmann::json& c = recorded()["sampling"][GetParam()];
  const std::string front = "sampling" + std::to_string(GetParam());
  const std::vector<float> scores = recorded_tensor(front + "/scores"),
                           want = recorded_tensor(front + "/log_probabilities");
  Sampling s{true, c["temperature"], c["top_k"], c["top_p"], c["min_p"], c["penalty"]};
  constexpr int kDraws = 20000;
  std::vector<int> count(scores.size());
  for (const SampledToken& t : drawn(scores, s, 99, kDraws, c["seen"])) {
    const auto id = static_cast<size_t>(t.id);
    ASSERT_NEAR(t.log_probability, want[id], 2e-5) << "token " << id;
    ++count[id];
  }
  double chi = 0, freedom = -1, rare = 0, rare_count = 0;
  const auto add = [&](double expected, double found) {
    chi += (found - expected) * (found - expected) / expected;
    freedom += 1;
  };
  for (size_t i = 0; i < scores.size(); ++i) {
    const double expected = kDraws * std::exp(static_cast<double>(want[i]));
    if (expected >= 5) {
      add(expected, count[i]);
    } else {
      rare += expected;
      rare_count += count[i];
    }
  }
  if (rare >= 5) add(rare, rare_count);
  // Wilson and Hilferty: the cube root of chi-square over its degrees of freedom is nearly normal.
  const double v = 2 / (9 * std::max(freedom, 1.0)),
               limit = std::max(freedom, 1.0) * std::pow(1 - v + 3.72 * std::sqrt(v), 3);
  EXPECT_LT(chi, limit) << "of freedom " << freedom;
}

INSTANTIATE_TEST_SUITE_P(All, SampledLikeTransformers, testing::Range(size_t{0}, size_t{8}));

TEST(DrawnTokens, ASeedAndANumberDecide) {
  const std::vector<float> scores = recorded_tensor("sampling0/scores");
  const auto ids = [&](uint64_t seed, int64_t count, int64_t first) {
    std::vector<int32_t> out;
    for (const SampledToken& t : drawn(scores, {.draw = true}, seed, count, {}, first)) out.push_back(t.id);
    return out;
  };
  const std::vector<int32_t> once = ids(7, 50, 0);
  EXPECT_THAT(ids(7, 20, 30), testing::ElementsAreArray(once.end() - 20, once.end())) << "whatever else is drawn";
  EXPECT_NE(once, ids(8, 50, 0));
  EXPECT_NE(once, ids(7 | uint64_t{1} << 60, 50, 0)) << "all bits of a seed count";
}

TEST(DrawnTokens, EqualScoresAndEmptyOnes) {
  const auto first = [](const std::vector<float>& scores) { return drawn(scores, {}, 0, 1).front(); };
  EXPECT_EQ(first({1, 5, 5, 2}).id, 1);
  const Sampling one{.draw = true, .top_k = 1}, half{.draw = true, .top_p = 0.4};
  for (const Sampling& s : {one, half}) {
    std::map<int32_t, int> count;
    for (const SampledToken& t : drawn({1, 5, 5, 2}, s, 3, 40)) ++count[t.id];
    EXPECT_EQ(count.size(), 2U) << "tokens that equal the last that is kept are kept";
    EXPECT_TRUE(count[1] && count[2]);
  }
  EXPECT_EQ(first({-INFINITY, -3}).id, 1);
  EXPECT_NEAR(first({0, 0}).log_probability, std::log(0.5), 1e-7);
  for (const std::vector<float>& none : {std::vector<float>{1, NAN}, {1, INFINITY}, {-INFINITY}})
    for (const bool draw : {false, true})
      EXPECT_TRUE(std::isnan(drawn(none, {.draw = draw}, 0, 1).front().log_probability));
}

TEST(Sampling, OptionsOutOfRange) {
  for (const Sampling& s :
       {Sampling{.temperature = 0}, Sampling{.temperature = NAN}, Sampling{.temperature = 9e-7}, Sampling{.top_k = -1},
        Sampling{.top_p = 0}, Sampling{.top_p = 1.5}, Sampling{.min_p = 2}, Sampling{.repetition_penalty = -1}})
    EXPECT_THROW(check_sampling(s), Error);
  check_sampling({.temperature = 1e-6});
}

// transformers uses 50 for a file that draws but gives nothing, or null.
TEST(Sampling, AModelsTopK) {
  const auto top_k = [](const char* config) {
    const Folder folder;
    write_model(recorded()["cases"][0], folder);
    folder.write("generation_config.json", config);
    return LanguageModel::open(folder.path())->sampling().top_k;
  };
  EXPECT_EQ(top_k(R"({"do_sample": true})"), 50);
  EXPECT_EQ(top_k(R"({"do_sample": true, "top_k": null})"), 50);
  EXPECT_EQ(top_k(R"({"do_sample": true, "top_k": 0})"), 0);
  EXPECT_EQ(top_k(R"({"do_sample": true, "top_k": 20})"), 20);
  EXPECT_EQ(top_k(R"({"temperature": 0.7})"), 0) << "it does not draw";
}

// ---- text -----------------------------------------------------------------------------------------------------------

ByteLevelTokenizer small_tokenizer() {
  std::ifstream in(fixture("byte_level/tokenizer.json"));
  return ByteLevelTokenizer::from_json(std::string(std::istreambuf_iterator<char>(in), {}), "tokenizer.json");
}

struct Streamed {
  std::string text;
  std::vector<std::string> pieces;
  bool stopped;
};

Streamed stream(const std::string& text, const std::vector<std::string>& stops) {
  const ByteLevelTokenizer t = small_tokenizer();
  TextStream s(t, stops);
  Streamed out;
  for (const int32_t id : t.encode(text)) out.pieces.push_back(s.push(id));
  out.pieces.push_back(s.finish());
  for (const std::string& p : out.pieces) {
    EXPECT_FALSE(first_invalid_utf8(p)) << p;
    out.text += p;
  }
  out.stopped = s.stopped();
  return out;
}

TEST(TextStream, WholeCharactersAndStops) {
  const std::string text = "na\u00efve caf\u00e9 \u65e5\u672c \U0001F600 the end";
  EXPECT_EQ(stream(text, {}).text, text);
  EXPECT_EQ(stream(text, {"\u672c"}).text, "na\u00efve caf\u00e9 \u65e5");
  EXPECT_EQ(stream("one two three", {"three", "two th"}).text, "one ");
  EXPECT_EQ(stream("aab", {"ab"}).text, "a");
  EXPECT_EQ(stream("aa", {"ab"}).text, "aa") << "what was held back comes in the end";
  EXPECT_EQ(stream("one two", {"", "x"}).text, "one two");
  EXPECT_TRUE(stream("one two", {"ne"}).stopped);
  EXPECT_FALSE(stream("one two", {"xx"}).stopped);
  const Streamed cut = stream("stop here", {"top"});
  EXPECT_EQ(cut.text, "s");
}

// A control token has no text of its own. It ends the text if it is a stop, and else every match in front of it.
TEST(TextStream, ControlTokens) {
  EXPECT_EQ(stream("one<|im_end|>two", {}).text, "onetwo");
  const Streamed stopped = stream("one t<|im_end|>two", {"zz", "<|im_end|>"});
  EXPECT_EQ(stopped.text, "one t");
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stream("on<|im_end|>", {"on", "<|im_end|>"}).text, "");
  EXPECT_FALSE(stream("one<|im_start|>two", {"<|im_end|>"}).stopped) << "another one";
  const Streamed over = stream("7<|im_end|>1", {"71"});
  EXPECT_EQ(over.text, "71");
  EXPECT_FALSE(over.stopped);
  EXPECT_EQ(stream("7<|im_end|>71", {"71"}).text, "7");
}

// Bytes that never become a character, and half of a character at the end.
TEST(TextStream, BytesThatAreNoText) {
  const ByteLevelTokenizer t = small_tokenizer();
  TextStream s(t, {});
  std::string out;
  for (const char* bytes : {"\xc3", "A", "\xf0"}) {
    const std::string symbol = bytes == std::string("A") ? "A" : std::string(bytes) == "\xc3" ? "\u00c3" : "\u00f0";
    const auto id = t.id_of(symbol);
    ASSERT_TRUE(id);
    out += s.push(*id);
  }
  out += s.finish();
  EXPECT_EQ(out, "\ufffdA\ufffd");
}

}  // namespace
}  // namespace tenon
