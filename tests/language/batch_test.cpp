// Texts that join and leave a batch: each equals the text of its request alone, whatever the others are.
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <map>
#include <random>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/models/decoder.h"
#include "tests/language/language_fixtures.h"
#include "tests/support/isa_backend.h"
#include "tests/support/sanitized.h"

namespace tenon {
namespace {
using namespace language_test;
using testing::HasSubstr;

const Folder& model_folder() {
  static const Folder folder;
  static const bool written = [] {
    nlohmann::json model = recorded()["cases"][0];
    model["config"]["max_position_embeddings"] = 2048;
    write_model(model, folder);
    folder.write("generation_config.json", R"({"eos_token_id": [3, 4]})");
    return true;
  }();
  static_cast<void>(written);
  return folder;
}

std::unique_ptr<TextGenerator> open(int64_t context, DType type = DType::F32, const Folder& folder = model_folder()) {
  TextOptions o = f32_options();
  o.threads = 1;
  o.type = type;
  o.context = context;
  return make_text_generator(LanguageModel::open(folder.path().string()), o);
}

// A caller's view of a text.
struct Seen {
  std::vector<int32_t> ids;
  std::vector<double> log_probabilities;
  std::string text;
  TextEnd end = TextEnd::MaxTokens;
  bool operator==(const Seen&) const = default;
};
Seen seen(const TextResult& r) {
  Seen s{{}, {}, r.text, r.end};
  for (const TextToken& t : r.tokens) {
    s.ids.push_back(t.id);
    s.log_probabilities.push_back(t.log_probability);
  }
  return s;
}
void PrintTo(const Seen& s, std::ostream* out) {
  for (size_t i = 0; i < s.ids.size(); ++i) *out << s.ids[i] << " (" << s.log_probabilities[i] << ") ";
  *out << finish_reason(s.end);
}

// Requests of every kind, most of them short.
class Requests {
 public:
  Requests(uint64_t seed, const TextGenerator& of)
      : random_(seed), vocabulary_(of.model().config().vocabulary), context_(of.context()) {}

  int64_t number(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random_); }
  bool once_in(int64_t n) { return number(1, n) == 1; }

  TextRequest next() {
    TextRequest r;
    r.slide = once_in(16);
    const int64_t most = once_in(40) ? (r.slide ? context_ + 20 : context_ - 1) : 24;
    r.prompt.resize(static_cast<size_t>(number(1, std::min(most, r.slide ? most : context_ - 1))));
    for (int32_t& id : r.prompt) id = static_cast<int32_t>(number(0, vocabulary_ - 1));
    r.max_tokens = once_in(40) && !r.slide ? 0 : once_in(30) ? number(1, context_ + 40) : number(1, 16);
    r.seed = random_();
    r.ignore_stop_ids = once_in(3);
    if (once_in(4)) r.stop = {std::string(1, static_cast<char>('a' + number(0, 25)))};
    Sampling& s = r.sampling;
    s.draw = !once_in(4);
    if (once_in(2)) s.temperature = 0.25 * static_cast<double>(number(1, 12));
    if (once_in(4)) s.top_k = number(1, 40);
    if (once_in(4)) s.top_p = 0.1 * static_cast<double>(number(1, 9));
    if (once_in(4)) s.min_p = 0.02 * static_cast<double>(number(1, 9));
    if (once_in(6)) s.repetition_penalty = 0.5 + 0.25 * static_cast<double>(number(0, 8));
    return r;
  }

 private:
  std::mt19937_64 random_;
  int64_t vocabulary_, context_;
};

struct Counts {
  int64_t texts = 0, cancelled = 0, tokens = 0, beside = 0;
};

// Submits `count` requests, some at a time, cancels some, and compares each with its own run. A cancelled text must be
// the beginning of its run. `tokens`: as in TextGenerator::batch.
Counts compare(int64_t count, uint64_t seed, int64_t rows, int64_t context, DType type = DType::F32,
               int64_t tokens = 0) {
  const std::unique_ptr<TextGenerator> together = open(context, type), alone = open(context, type);
  const std::unique_ptr<TextBatch> batch = together->batch(rows, tokens);
  Requests requests(seed, *together);
  std::map<int64_t, TextRequest> open_texts;
  std::map<int64_t, std::string> streamed;
  Counts counts;
  const auto compare_one = [&](const EndedText& text) {
    const TextRequest r = open_texts.extract(text.id).mapped();
    ASSERT_FALSE(text.error) << text.error->what();
    const Seen got = seen(text.result);
    ++counts.texts;
    counts.tokens += std::ssize(got.ids);
    counts.beside += static_cast<int64_t>(open_texts.size());
    // In f32 generate() continues after what its cache holds of a prompt; in bf16 scores may then differ.
    Seen want = seen(type == DType::F32 ? alone->generate(r) : generate_all(*alone, std::array{r}, 1).front());
    if (got.end == TextEnd::Cancelled) {
      ++counts.cancelled;
      ASSERT_LE(got.ids.size(), want.ids.size());
      want.ids.resize(got.ids.size());
      want.log_probabilities.resize(got.ids.size());
      ASSERT_THAT(want.text, testing::StartsWith(streamed[text.id]));
      want.text = got.text;
      want.end = got.end;
    } else {
      ASSERT_EQ(streamed[text.id], got.text);
    }
    ASSERT_EQ(got, want) << "text " << text.id << " of seed " << seed << ", prompt of " << r.prompt.size();
    streamed.erase(text.id);
  };
  for (int64_t left = count; left > 0 || batch->busy();) {
    for (int64_t n = requests.once_in(3) ? requests.number(0, 2 * rows) : 0; n > 0 && left > 0; --n, --left) {
      const TextRequest r = requests.next();
      auto text = std::make_shared<std::string*>(nullptr);
      const int64_t id = batch->submit(r, [text](const TextToken& t) { **text += t.text; });
      *text = &streamed[id];
      open_texts[id] = r;
    }
    if (!open_texts.empty() && requests.once_in(12)) {
      const auto at = std::next(open_texts.begin(), requests.number(0, std::ssize(open_texts) - 1));
      EXPECT_TRUE(batch->cancel(at->first));
      EXPECT_FALSE(batch->cancel(at->first)) << "a second time";
    }
    for (const EndedText& text : batch->step()) {
      compare_one(text);
      if (testing::Test::HasFatalFailure()) return counts;
    }
  }
  EXPECT_TRUE(open_texts.empty());
  return counts;
}

// TENON_BATCH_REQUESTS=10000 tests more of them.
TEST(TextBatches, EachTextIsItsRunAlone) {
  const char* many = std::getenv("TENON_BATCH_REQUESTS");
  const int64_t count = many ? std::atoll(many) : 240;
  const Counts a = compare(count / 2, 20, 5, 90), b = compare(count - count / 2, 21, 12, 400, DType::F32, 400);
  std::cout << a.texts + b.texts << " texts of " << a.tokens + b.tokens << " tokens, " << a.cancelled + b.cancelled
            << " cancelled\n";
  EXPECT_EQ(a.texts + b.texts, count);
  EXPECT_GT(a.cancelled + b.cancelled, 0);
  EXPECT_GT(a.beside + b.beside, count) << "others are there when a text ends";
}

// A cache for one text of the longest length: others give their pages back, wait, and continue with the same tokens.
TEST(TextBatches, TextsTakeTurnsWherePagesAreFew) {
  for (const DType type : {DType::F32, DType::BF16}) {
    if (sanitized() && type == DType::BF16) continue;  // the same turns, and other tests run its kernels
    const std::unique_ptr<TextGenerator> generator = open(0, type);
    std::vector<TextRequest> requests;
    for (size_t i = 0; i < 4; ++i) {
      TextRequest& r = requests.emplace_back();
      r.prompt.assign(10 + 140 * i, static_cast<int32_t>(5 + i));
      r.max_tokens = 700;
      r.ignore_stop_ids = true;
      r.sampling.draw = true;
      r.seed = i;
    }
    const std::unique_ptr<TextBatch> batch = generator->batch(3, 1200);  // they come to 4, of 710 to 1130
    std::array<int64_t, 4> made{};
    for (size_t i = 0; i < 4; ++i) batch->submit(requests[i], [&made, i](const TextToken&) { ++made[i]; });
    std::vector<int64_t> order;
    while (batch->busy())
      for (const EndedText& text : batch->step()) {
        ASSERT_FALSE(text.error) << text.error->what();
        if (order.empty()) {
          EXPECT_LT(made[2], 600) << "it had to wait for the first";
          EXPECT_GT(made[1], 100) << "side by side with the first";
        }
        order.push_back(text.id);
        const auto id = static_cast<size_t>(text.id);
        EXPECT_EQ(seen(text.result), seen(generate_all(*generator, std::array{requests[id]}, 1).front())) << id;
      }
    EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3));
  }
}

// All 64 bits of a seed affect a text, in a batch and alone.
TEST(TextBatches, SeedsOf64Bits) {
  const std::unique_ptr<TextGenerator> generator = open(0);
  TextRequest r;
  r.prompt = {1, 2};
  r.max_tokens = 12;
  r.ignore_stop_ids = true;
  r.sampling.draw = true;
  r.sampling.temperature = 3;
  std::vector<TextRequest> all;
  for (const uint64_t seed : {uint64_t{5}, 5 | uint64_t{1} << 60, 5 | uint64_t{1} << 33, uint64_t{5}}) {
    all.push_back(r);
    all.back().seed = seed;
  }
  const std::vector<TextResult> made = generate_all(*generator, all, 4);
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(seen(made[i]).ids, seen(made[j]).ids) << all[i].seed;
  EXPECT_EQ(seen(made[0]), seen(made[3]));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(seen(made[i]), seen(generator->generate(all[i])));
}

TEST(TextBatches, AlsoInBf16) {
  const Counts made = compare(24, 22, 4, 90, DType::BF16);
  EXPECT_EQ(made.texts, 24);
}

TextRequest request(std::vector<int32_t> prompt, int64_t most = 12) {
  TextRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = most;
  r.ignore_stop_ids = true;
  return r;
}

// While a prompt of three chunks is read, another text advances by at least one token per chunk.
TEST(TextBatches, AWritingTextWaitsForOneChunkAtMost) {
  const std::unique_ptr<TextGenerator> generator = open(0);
  const std::unique_ptr<TextBatch> batch = generator->batch(2);
  int64_t written = 0, steps = 0;
  batch->submit(request({1, 2, 3}, 200), [&](const TextToken&) { ++written; });
  while (written == 0) batch->step();
  bool begun = false;
  batch->submit(request(std::vector<int32_t>(1500, 7), 2), [&](const TextToken&) { begun = true; });
  for (int64_t before = written; !begun; before = written, ++steps) {
    batch->step();
    ASSERT_GT(written, before);
  }
  EXPECT_GE(steps, 3);
}

std::string usage_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Usage);
    return e.what();
  }
  return "nothing was thrown";
}

TEST(TextBatches, WhatIsRefused) {
  const std::unique_ptr<TextGenerator> generator = open(32);
  EXPECT_THAT(usage_of([&] { generator->batch(0); }), HasSubstr("expected 1 to 1024"));
  const std::unique_ptr<TextBatch> batch = generator->batch(2);
  EXPECT_THAT(usage_of([&] { batch->submit(request({})); }), HasSubstr("no tokens"));
  EXPECT_THAT(usage_of([&] { batch->submit(request({-1})); }), HasSubstr("outside the model's vocabulary"));
  EXPECT_THAT(usage_of([&] { batch->submit(request(std::vector<int32_t>(32, 1))); }),
              HasSubstr("32 tokens leave no room for a text: the context has 32"));
  EXPECT_THAT(usage_of([&] { batch->submit(request({1}, -1)); }), HasSubstr("max tokens"));
  EXPECT_THAT(usage_of([&] { batch->cancel(0); }), HasSubstr("no text 0"));
  EXPECT_FALSE(batch->busy());
  EXPECT_TRUE(batch->step().empty()) << "nothing to do";

  EXPECT_EQ(batch->submit(request({1})), 0) << "what was refused has no number";
  EXPECT_TRUE(batch->cancel(0)) << "before it has begun";
  EXPECT_FALSE(batch->cancel(0));
  const std::vector<EndedText> ended = batch->step();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(finish_reason(ended[0].result.end), "cancelled");
  EXPECT_FALSE(batch->cancel(0));

  std::string own;
  batch->submit(request({1}), [&](const TextToken&) { own = usage_of([&] { batch->cancel(1); }); });
  while (batch->busy()) batch->step();
  EXPECT_THAT(own, HasSubstr("callback cannot cancel"));
}

// A text too large for the whole cache ends; its neighbours are not affected.
TEST(TextBatches, ATextLargerThanTheCache) {
  const std::unique_ptr<TextGenerator> generator = open(0);
  EXPECT_THAT(usage_of([&] { generator->batch(1, -1); }), HasSubstr("a cache of -1 tokens"));
  const std::unique_ptr<TextBatch> batch = generator->batch(2, 250);
  const std::vector<TextRequest> all{request({1, 2}, 200), request(std::vector<int32_t>(1400, 7)), request({3}, 1500)};
  for (const TextRequest& r : all) batch->submit(r);
  while (batch->busy())
    for (const EndedText& text : batch->step()) {
      ASSERT_EQ(text.error.has_value(), text.id != 0);
      if (text.error) {
        EXPECT_EQ(text.error->kind(), ErrorKind::Memory);
        EXPECT_THAT(text.error->what(), HasSubstr("holds at most 256 of one text"));
      } else {
        EXPECT_EQ(seen(text.result), seen(generator->generate(all[0])));
      }
    }
}

TEST(TextBatches, StopTokensAreBounded) {
  const Folder folder;
  write_model(recorded()["cases"][0], folder);
  for (const size_t count : {64U, 65U}) {
    folder.write("generation_config.json", nlohmann::json{{"eos_token_id", std::vector<int>(count, 3)}}.dump());
    try {
      EXPECT_EQ(LanguageModel::open(folder.path().string())->stop_ids().size(), 64U);
      EXPECT_EQ(count, 64U);
    } catch (const Error& e) {
      EXPECT_EQ(count, 65U);
      EXPECT_THAT(e.what(), HasSubstr("at most 64 tokens"));
    }
  }
}

// A CPU that runs out of memory: the next `failing` allocations fail.
int failing = 0;
class Scarce : public IsaBackend {
 public:
  using IsaBackend::IsaBackend;
  std::shared_ptr<void> allocate(int64_t bytes) override {
    if (failing > 0 && failing-- > 0) throw Error(ErrorKind::Memory, "allocate", "none left");
    return IsaBackend::allocate(bytes);
  }
};
const RegisterBackend kScarce("scarce", [](const BackendOptions&) -> std::unique_ptr<Backend> {
  return std::make_unique<Scarce>(cpu::Isa::Avx2, 1);
});

// A CPU with a limited amount of memory.
int64_t room = 0, held = 0, max_held = 0;
class Small : public IsaBackend {
 public:
  using IsaBackend::IsaBackend;
  int64_t memory_available() const override { return room - held; }
  std::shared_ptr<void> allocate(int64_t bytes) override {
    TENON_CHECK(Memory, held + bytes <= room, "allocate") << bytes << " bytes where " << room - held << " are free";
    held += bytes;
    max_held = std::max(max_held, held);
    const std::shared_ptr<void> memory = IsaBackend::allocate(bytes);
    return {memory.get(), [memory, bytes](void*) { held -= bytes; }};
  }
};
const RegisterBackend kSmall("small", [](const BackendOptions&) -> std::unique_ptr<Backend> {
  return std::make_unique<Small>(cpu::Isa::Avx2, 1);
});

// The context suggested by a refusal fits, including weights and activations.
TEST(TextBatches, ARefusedContextNamesOneThatFits) {
  const auto write = [](int64_t context) {
    TextOptions o = f32_options();
    o.device = "small";
    o.context = context;
    const auto generator = make_text_generator(LanguageModel::open(model_folder().path().string()), o);
    TextRequest r = request(std::vector<int32_t>(8, 3), 1);
    r.max_tokens = 0;
    r.prompt.resize(static_cast<size_t>(context) - 2, 3);
    return generator->generate(r).tokens.size();
  };
  room = int64_t{1} << 40;
  EXPECT_EQ(write(2048), 2U);
  EXPECT_EQ(held, 0) << "a generator gives back what it took";
  int named = 0;
  bool whole = false;
  for (room = 1 << 20; !whole && room < (64 << 20); room += 1 << 18) {
    int64_t fits = 0;
    try {
      whole = write(2048) == 2;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Memory);
      const std::string what = e.what(), before = "at most ";
      ASSERT_THAT(what, HasSubstr(before)) << "of " << room;
      fits = std::stoll(what.substr(what.find(before) + before.size()));
    }
    if (fits < 4) continue;
    ++named;
    EXPECT_EQ(write(fits), 2U) << fits << " tokens in " << room << " bytes";
  }
  EXPECT_TRUE(whole);
  EXPECT_GT(named, 0);
}

// One long text among short ones takes memory for its own tokens, not as much for each text.
TEST(TextBatches, ShortTextsTakeFewPages) {
  TextOptions o = f32_options();
  o.device = "small";
  room = int64_t{1} << 40;
  const auto generator = make_text_generator(LanguageModel::open(model_folder().path().string()), o);
  const auto most_of = [&](int64_t rows) {
    const std::unique_ptr<TextBatch> batch = generator->batch(rows);
    batch->submit(request(std::vector<int32_t>(1500, 7), 100));
    for (int64_t i = 1; i < rows; ++i) batch->submit(request({1, 2, 3}, 100));
    max_held = held;
    const int64_t before = held;
    while (batch->busy()) EXPECT_FALSE(batch->step().size() > static_cast<size_t>(rows));
    return max_held - before;
  };
  const int64_t token = generator->model().config().cache_bytes(DType::F32);
  most_of(1);  // weights
  const int64_t one = most_of(1), many = most_of(16);
  std::cout << one << " bytes for one text, " << many << " for 16, of " << token << " a token in the cache\n";
  EXPECT_LT(many - one, 15 * 1600 * token) << "all that is beside caches, too";
}

// If a cache cannot grow, the text that needs it ends and the others continue; if not even the old cache can be
// restored, all end. In both cases later texts are the same as alone.
TEST(TextBatches, ACacheThatCannotGrow) {
  TextOptions o = f32_options();
  o.device = "scarce";
  const auto generator = make_text_generator(LanguageModel::open(model_folder().path().string()), o);
  const auto alone = [&](const TextRequest& r) {
    const std::unique_ptr<TextBatch> one = generator->batch(1);
    one->submit(r);
    for (;;)
      for (EndedText& t : one->step()) return seen(t.result);
  };
  const TextRequest brief = request({3, 1}, 450), more = request({4}, 700);  // grows at 512
  const Seen want_brief = alone(brief), want_more = alone(more);
  for (const int lost : {1, 1000}) {
    const std::unique_ptr<TextBatch> batch = generator->batch(2);
    std::map<int64_t, EndedText> ended;
    const auto step = [&] {
      for (EndedText& t : batch->step()) ended.emplace(t.id, std::move(t));
    };
    int64_t written = 0;
    batch->submit(more, [&](const TextToken&) { ++written; });
    while (written < 100) step();
    batch->submit(brief);
    while (written < 500) step();
    failing = lost;
    while (batch->busy()) step();
    failing = 0;
    ASSERT_TRUE(ended.at(0).error) << lost;
    EXPECT_EQ(ended.at(0).error->kind(), ErrorKind::Memory);
    if (lost == 1) {
      EXPECT_FALSE(ended.at(1).error);
      EXPECT_EQ(seen(ended.at(1).result), want_brief);
    }
    const int64_t again = batch->submit(more);
    while (batch->busy()) step();
    EXPECT_FALSE(ended.at(again).error) << lost;
    EXPECT_EQ(seen(ended.at(again).result), want_more) << lost;
  }
}

// A text whose scores are not finite (token 5 is NaN) ends; the others are the same as alone.
TEST(TextBatches, OneBadTextEndsAlone) {
  const Folder folder;
  write_model(recorded()["cases"][1], folder, false, 5);
  const std::unique_ptr<TextGenerator> generator = open(64, DType::F32, folder);
  const std::vector<TextRequest> all{request({1, 2}, 20), request({5, 6}), request({3}, 20), request({4, 4, 4}, 20)};
  const std::unique_ptr<TextBatch> batch = generator->batch(2);
  for (const TextRequest& r : all) batch->submit(r);
  while (batch->busy())
    for (const EndedText& text : batch->step()) {
      ASSERT_EQ(text.error.has_value(), text.id == 1);
      if (text.error)
        EXPECT_EQ(text.error->kind(), ErrorKind::Numeric);
      else
        EXPECT_EQ(seen(text.result), seen(generator->generate(all[static_cast<size_t>(text.id)])));
    }
  EXPECT_THROW(generate_all(*generator, all, 2), Error);
  EXPECT_EQ(generate_all(*generator, std::array{all[0], all[2]}, 8).size(), 2U);
  EXPECT_TRUE(generate_all(*generator, {}, 8).empty());
}

// After a callback that throws, or a stop request, the batch is empty and usable.
TEST(TextBatches, WhatThrowsEmptiesTheBatch) {
  const std::unique_ptr<TextGenerator> generator = open(64);
  const std::unique_ptr<TextBatch> batch = generator->batch(2);
  batch->submit(request({1}), [](const TextToken&) { throw std::runtime_error("reader has gone"); });
  batch->submit(request({2}));
  EXPECT_THROW(while (batch->busy()) batch->step(), std::runtime_error);
  EXPECT_FALSE(batch->busy());
  EXPECT_FALSE(batch->cancel(1)) << "it was dropped";
  batch->submit(request({3}));
  batch->step();
  {
    const StopScope stop([] { return true; });
    EXPECT_THROW(batch->step(), Error);
  }
  EXPECT_FALSE(batch->busy());
  batch->submit(request({4, 5}));
  std::vector<EndedText> ended;
  while (batch->busy())
    for (EndedText& text : batch->step()) ended.push_back(std::move(text));
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(seen(ended[0].result), seen(generator->generate(request({4, 5}))));
}

}  // namespace
}  // namespace tenon
