// Runs of Dr. GRPO with a tiny recorded model.
#pragma once
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "tenon/train/grpo.h"
#include "tests/language/language_fixtures.h"

namespace tenon::train {

/// A recorded model; ten tokens end its texts.
inline std::shared_ptr<const LanguageModel> tiny_model(size_t number = 0) {
  static std::map<size_t, std::shared_ptr<const LanguageModel>> made;
  static std::vector<std::unique_ptr<language_test::Folder>> folders;
  std::shared_ptr<const LanguageModel>& model = made[number];
  if (!model) {
    const language_test::Folder& folder = *folders.emplace_back(std::make_unique<language_test::Folder>());
    language_test::write_model(language_test::recorded()["cases"][number], folder);
    folder.write("generation_config.json", R"({"eos_token_id": [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]})");
    model = LanguageModel::open(folder.path().string());
  }
  return model;
}

inline GrpoOptions quick_options() {
  GrpoOptions o;
  o.prompts = 2;
  o.group = 4;
  o.max_tokens = 12;
  o.rewards = parse_rewards({"length"});
  o.schedule.peak = 5e-3;
  o.schedule.steps = 24;
  o.terms.beta = 0.01;
  o.evaluate_every = 0;
  o.checkpoint_every = 6;
  return o;
}

inline GrpoData sums() {
  return {[](int64_t k) { return sums_problem(1, k); },
          [](int64_t k) { return sums_problem(1, k, SumsSplit::HeldOut); },
          {{"dataset", "sums"}},
          {}};
}

/// A run's metrics, until it ends or is stopped after a step.
inline std::vector<nlohmann::ordered_json> train(const GrpoOptions& o, const std::filesystem::path& folder,
                                                 int64_t stop_at = -1) {
  std::vector<nlohmann::ordered_json> out;
  Grpo grpo(make_backend("cpu"), tiny_model(), sums(), o, folder);
  const bool whole =
      grpo.run([&](const nlohmann::ordered_json& m) { out.push_back(m); }, [&] { return grpo.step() == stop_at; });
  EXPECT_EQ(whole, stop_at < 0);
  return out;
}

}  // namespace tenon::train
