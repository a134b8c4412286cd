// Text generation by a device without the host: n runs of one recorded step, over states.
#include "tenon/pipelines/decode_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/pipelines/random_weights.h"
#include "tests/runtime/places.h"

namespace tenon {
namespace {
using testing::HasSubstr;

DecoderConfig small_decoder() {
  DecoderConfig c;
  c.family = "llama";
  c.vocabulary = 48;
  c.width = c.hidden = 32;
  c.layers = 1;
  c.heads = 2;
  c.key_heads = 1;
  c.head_width = 16;
  c.positions = 64;
  c.qkv_bias = false;
  return c;
}

struct MadeText {
  std::vector<int32_t> tokens;
  std::vector<double> log_probabilities;
  bool operator==(const MadeText&) const = default;
  MadeText first(size_t n) const {
    return {{tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)},
            {log_probabilities.begin(), log_probabilities.begin() + static_cast<std::ptrdiff_t>(n)}};
  }
};
void PrintTo(const MadeText& t, std::ostream* out) {
  for (size_t i = 0; i < t.tokens.size(); ++i) *out << t.tokens[i] << " (" << t.log_probabilities[i] << ") ";
}

class LoopUnderTest {
 public:
  LoopUnderTest(const places::Place& place, DecodeStepShape shape)
      : store_(std::make_shared<WeightStore>(place.backend, random_weights(decoder_weights(small_decoder()), 3))),
        loop_(
            shape, small_decoder().vocabulary,
            [place](const DecodeStepShape& s) {
              return plan_decode_step(small_decoder(), s, nn::kF32, {.target = place.backend->target()});
            },
            store_, place.backend->make_stream(), std::make_shared<Buffers>(place.backend)) {}

  std::vector<MadeText> run(std::vector<DecodeRow> rows, const std::vector<int32_t>& stops = {},
                            const std::function<bool(size_t row, size_t made)>& goes = {}) {
    std::vector<MadeText> out(rows.size());
    for (DecodeRow& r : rows) r.stops = stops;
    loop_.run(rows, [&](size_t r, const SampledToken& t) {
      out[r].tokens.push_back(t.id);
      out[r].log_probabilities.push_back(t.log_probability);
      return !goes || goes(r, out[r].tokens.size());
    });
    return out;
  }

  DecodeLoop& loop() { return loop_; }

 private:
  std::shared_ptr<WeightStore> store_;
  DecodeLoop loop_;
};

constexpr int64_t kLong = 11;  // more than one lot

std::vector<DecodeRow> three_rows() {
  std::vector<DecodeRow> rows(3);
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].token = static_cast<int32_t>(5 * r + 2);
    rows[r].most = kLong;
    rows[r].seed = (uint64_t{1} << 40) + r / 2;
    rows[r].draw = 1;
  }
  rows[1].sampling = {.draw = true, .temperature = 1.5};
  rows[2].sampling = {.draw = true, .temperature = 2, .top_k = 9, .top_p = 0.9, .min_p = 0.01};
  return rows;
}

TEST(DecodeLoop, IsItsRunsOneByOneAndEachRowByItself) {
  for (const places::Place& place : places::places()) {
    SCOPED_TRACE(place.name);
    const DecodeStepShape shape{.rows = 3, .capacity = 64, .stops = 2};
    LoopUnderTest loop(place, shape);
    const std::vector<DecodeRow> rows = three_rows();
    const std::vector<MadeText> whole = loop.run(rows);
    for (const MadeText& t : whole) ASSERT_EQ(t.tokens.size(), static_cast<size_t>(kLong));
    EXPECT_EQ(loop.run(rows), whole) << "again";
    if (place.backend->records()) {
      EXPECT_EQ(place.recordings(), 2);  // the step, and the plan that puts a row in
    }

    std::vector<DecodeRow> now = rows;
    std::vector<MadeText> one_by_one(3);
    for (int64_t step = 0; step < kLong; ++step) {
      for (DecodeRow& r : now) r.most = 1;
      const std::vector<MadeText> made = loop.run(now);
      for (size_t r = 0; r < 3; ++r) {
        one_by_one[r].tokens.push_back(now[r].token = made[r].tokens.at(0));
        one_by_one[r].log_probabilities.push_back(made[r].log_probabilities.at(0));
        ++now[r].position;
        ++now[r].draw;
      }
    }
    EXPECT_EQ(one_by_one, whole);

    LoopUnderTest alone(place, place.compiles ? shape : DecodeStepShape{.capacity = 64, .stops = 2});
    for (size_t r = 0; r < 3; ++r) EXPECT_EQ(alone.run({rows[r]}).at(0), whole[r]) << "row " << r;

    // Every kind of end, each of one row while others continue: the row's limit, a stop token, the host.
    std::vector<DecodeRow> ends = rows;
    ends[0].most = 5;
    const int32_t stop = whole[1].tokens[6];
    const std::vector<MadeText> ended =
        loop.run(ends, {-1, stop}, [](size_t row, size_t made) { return row != 2 || made < 3; });
    const auto until = [&](const MadeText& t, size_t most) {
      const auto at = static_cast<size_t>(std::ranges::find(t.tokens, stop) - t.tokens.begin());
      return t.first(std::min(at + 1, most));
    };
    EXPECT_EQ(ended[0], until(whole[0], 5));
    EXPECT_EQ(ended[1], until(whole[1], kLong));
    EXPECT_EQ(ended[2], until(whole[2], 3));
  }
}

// Text 0 starts alone, text 1 joins it; text 2 takes over the row of text 0, which has not ended.
TEST(DecodeLoop, RowsJoinAndLeaveBetweenRuns) {
  for (const places::Place& place : places::places()) {
    SCOPED_TRACE(place.name);
    LoopUnderTest under_test(place, {.rows = 3, .capacity = 64, .stops = 2});
    std::vector<DecodeRow> texts = three_rows();
    const std::vector<MadeText> whole = under_test.run(texts);
    const std::array<int32_t, 1> stop{whole[2].tokens[7]};
    texts[2].stops = stop;  // its own: the others do not stop there
    DecodeLoop& loop = under_test.loop();
    std::vector<MadeText> made(3);
    std::array<size_t, 3> text_of{};
    const auto join = [&](size_t row, size_t text) {
      text_of[row] = text;
      loop.join(row, texts[text]);
    };
    const auto step = [&] {
      loop.step([&](size_t row, const SampledToken& t) {
        made[text_of[row]].tokens.push_back(t.id);
        made[text_of[row]].log_probabilities.push_back(t.log_probability);
        return true;
      });
    };
    join(2, 0);
    while (made[0].tokens.empty()) step();
    join(0, 1);
    while (made[1].tokens.empty()) step();
    loop.leave(2);
    join(2, 2);
    while (loop.going()) step();
    const auto end = static_cast<size_t>(std::ranges::find(whole[2].tokens, stop[0]) - whole[2].tokens.begin()) + 1;
    EXPECT_EQ(made[0], whole[0].first(made[0].tokens.size()));
    EXPECT_EQ(made[1], whole[1]);
    EXPECT_EQ(made[2], whole[2].first(end));
  }
}

// With a pool of fewer pages than all rows' longest texts need, tokens equal those with contiguous caches; pages
// returned by one row are reused by another.
TEST(DecodeLoop, PagesOfAPool) {
  for (const places::Place& place : places::places()) {
    SCOPED_TRACE(place.name);
    LoopUnderTest side_by_side(place, {.rows = 3, .capacity = 64, .stops = 2});
    LoopUnderTest in_pages(place, {.rows = 3, .capacity = 64, .page = 4, .pages = 10, .stops = 2});
    const std::vector<DecodeRow> rows = three_rows();  // of three pages each
    const std::vector<MadeText> whole = side_by_side.run(rows);
    DecodeLoop& loop = in_pages.loop();
    const std::array<std::array<int32_t, 3>, 3> pages{{{7, 2, 9}, {1, 8, 3}, {4, 6, 5}}};
    for (size_t r = 0; r < 3; ++r) loop.give_pages(r, pages[r]);
    EXPECT_EQ(in_pages.run(rows), whole);
    loop.park(1, 0);
    loop.give_pages(1, {});
    loop.give_pages(0, std::array<int32_t, 3>{3, 8, 1});
    loop.give_pages(2, std::array<int32_t, 3>{2, 9, 7});
    for (const size_t r : {0, 2}) loop.join(r, rows[r]);
    EXPECT_EQ(loop.reach(0), kLong);
    std::vector<MadeText> made(3);
    while (loop.going())
      loop.step([&](size_t r, const SampledToken& t) {
        made[r].tokens.push_back(t.id);
        made[r].log_probabilities.push_back(t.log_probability);
        return true;
      });
    EXPECT_EQ(made[0], whole[0]);
    EXPECT_EQ(made[2], whole[2]);
  }
}

TEST(DecodeLoop, PenaltiesErrorsAndStopping) {
  const places::Place place = places::places().front();
  if (place.compiles) GTEST_SKIP() << "shown on the processor";
  LoopUnderTest loop(place, {.capacity = 64, .penalises = true});
  DecodeRow row = three_rows()[0];
  const std::vector<int32_t> some{1, 2, 3, 4, 5};
  const MadeText plain = loop.run({row}).at(0);
  row.sampling.repetition_penalty = 1e6;  // tokens that have occurred do not recur
  row.seen = some;
  std::vector<int32_t> made = loop.run({row}).at(0).tokens;
  EXPECT_NE(made, plain.tokens);
  made.insert(made.end(), some.begin(), some.end());
  std::ranges::sort(made);
  EXPECT_EQ(std::unique(made.begin(), made.end()), made.end());

  DecodeRow hopeless = row;
  hopeless.sampling = {.draw = true, .temperature = 1e-45};
  try {
    loop.run({hopeless});
    ADD_FAILURE() << "scores that are not finite";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Numeric);
    EXPECT_THAT(e.what(), HasSubstr("after 1 tokens"));
  }
  int asked = 0;
  const StopScope stop([&] { return ++asked > 30; });
  EXPECT_THROW(loop.run({row}), Error);
}

}  // namespace
}  // namespace tenon
