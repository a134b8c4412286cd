// Texts that fill up together, and results in order.
#include <gmock/gmock.h>

#include <array>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tests/language/language_fixtures.h"

namespace tenon {
namespace {
using namespace language_test;

// Texts that fill their caches in the same step make these grow once, not once each: that would be more than f32 can
// number for so many rows.
TEST(TextBatches, TextsThatFillUpTogether) {
  const Folder folder;
  nlohmann::json model = recorded()["cases"][0];
  model["config"]["max_position_embeddings"] = 1 << 19;
  write_model(model, folder);
  TextOptions o = f32_options();
  o.threads = 1;
  const auto generator = make_text_generator(LanguageModel::open(folder.path().string()), o);
  const std::unique_ptr<TextBatch> batch = generator->batch(64);
  TextRequest r;
  r.max_tokens = 600;
  r.ignore_stop_ids = true;
  for (int i = 0; i < 12; ++i) {  // each begins a step after the one before
    r.prompt.push_back(5 + i);
    batch->submit(r);
  }
  std::vector<int64_t> lengths;
  while (batch->busy())
    for (const EndedText& text : batch->step()) {
      ASSERT_FALSE(text.error) << text.error->what();
      lengths.push_back(std::ssize(text.result.tokens));
    }
  EXPECT_THAT(lengths, testing::ElementsAreArray(std::vector<int64_t>(12, 600)));
}

// Each comes when it and those before it have ended.
TEST(TextBatches, ResultsComeInOrder) {
  const Folder folder;
  write_model(recorded()["cases"][0], folder);
  const auto generator = make_text_generator(LanguageModel::open(folder.path().string()), f32_options());
  std::vector<TextRequest> requests(4);
  for (size_t i = 0; i < 4; ++i) {
    requests[i].prompt = {7};
    requests[i].max_tokens = std::array{30, 5, 100, 5}[i];
    requests[i].ignore_stop_ids = true;
  }
  std::vector<int64_t> came;
  const auto note = [&](const EndedText& text) { came.push_back(text.id); };
  generate_all(*generator, requests, 4, note);
  EXPECT_THAT(came, testing::ElementsAre(0, 1, 2, 3));
  came.clear();
  {
    const StopScope stop([&] { return !came.empty(); });
    EXPECT_THROW(generate_all(*generator, requests, 4, note), Error);
  }
  EXPECT_THAT(came, testing::ElementsAre(0, 1)) << "while the third is being written";
  came.clear();
  requests[2].prompt.clear();
  generate_all(*generator, requests, 4, [&](const EndedText& text) {
    note(text);
    ASSERT_EQ(text.error.has_value(), text.id == 2);
    EXPECT_EQ(text.result.tokens.size(), (std::array{30U, 5U, 0U, 5U}[came.size() - 1]));
    if (text.error) {
      EXPECT_THAT(text.error->what(), testing::StartsWith("[prompt] has no tokens"));
    }
  });
  EXPECT_THAT(came, testing::ElementsAre(0, 1, 2, 3)) << "a refused prompt costs no other";
  const auto refused = [&](std::span<const TextRequest> some) {
    const StopScope stop([] { return true; });  // at the first text
    try {
      generate_all(*generator, some, 4);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("written");
  };
  EXPECT_THAT(refused(requests), testing::StartsWith("[prompt 3] has no tokens"));
  EXPECT_THAT(refused(std::span(requests).subspan(2, 1)), testing::StartsWith("[prompt] has no tokens"));
  requests[3].max_tokens = -1;
  EXPECT_THROW(generate_all(*generator, requests, 4, note), Error);
  EXPECT_EQ(came.size(), 4U) << "refused before any text";
}

}  // namespace
}  // namespace tenon
