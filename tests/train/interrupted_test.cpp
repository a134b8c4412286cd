// Work goes on after Error(Cancelled) as if it had not been started: nothing of the interrupted call remains.
#include <gmock/gmock.h>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/train/rollout.h"
#include "tests/train/tiny_runs.h"

namespace tenon::train {
namespace {
using nlohmann::ordered_json;

// Ends `work` at its `cut`-th question whether to stop. False if it ended by itself.
template <class Work>
bool cancelled(int64_t cut, const Work& work) {
  int64_t asked = 0;
  const StopScope scope([&] { return ++asked >= cut; });
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Cancelled) << e.what();
    return true;
  }
  return false;
}

std::vector<Completion> complete(Rollout& rollout, int64_t most, int32_t first) {
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t n : {3, 23, 9}) {
    prompts.emplace_back();
    for (int64_t i = 0; i < n; ++i) prompts.back().push_back(static_cast<int32_t>((37 * i * i + first) % 894));
  }
  return rollout.complete(prompts, {0, 0, 0}, {most, true, {}});
}

TEST(Interrupted, ARolloutOfAnotherSize) {
  const auto model = tiny_model();
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  const auto store = std::make_shared<WeightStore>(backend, model->weights());
  const std::vector<Completion> want = [&] {
    Rollout rollout(store, model->config(), nn::kF32);
    return complete(rollout, 6, 5);
  }();
  int64_t cuts = 0;
  for (int64_t cut = 1;; cut = cut < 8 ? cut + 1 : 2 * cut) {
    Rollout rollout(store, model->config(), nn::kF32);
    complete(rollout, 6, 700);  // leaves other keys and values in the caches
    if (!cancelled(cut, [&] { complete(rollout, 60, 5); })) break;
    ++cuts;
    const std::vector<Completion> got = complete(rollout, 6, 5);
    for (size_t r = 0; r < want.size(); ++r) {
      EXPECT_EQ(got[r].tokens, want[r].tokens) << "cut " << cut << ", row " << r;
      EXPECT_EQ(got[r].log_probabilities, want[r].log_probabilities) << "cut " << cut << ", row " << r;
    }
  }
  EXPECT_GE(cuts, 8);
}

// The next step draws with the masters, not with the averages that the evaluation read.
TEST(Interrupted, AnEvaluationOfAverages) {
  GrpoOptions o = quick_options();
  o.ema = 0.5;
  o.schedule.steps = 3;
  o.schedule.peak = 1e-2;
  o.evaluate_every = 2;
  o.evaluate_count = 2;
  const auto last_step = [&](int64_t cut) {
    const language_test::Folder folder;
    Grpo grpo(make_backend("cpu"), tiny_model(), sums(), o, folder.path());
    ordered_json last;
    bool evaluates = false;
    int64_t asked = 0;
    const auto each = [&](const ordered_json& m) {
      evaluates = m.value("step", 0) == 2 && m.contains("loss");
      if (m.contains("loss")) last = m;
    };
    try {
      const StopScope scope([&] { return evaluates && cut > 0 && ++asked >= cut; });
      grpo.run(each, [] { return false; });
      EXPECT_EQ(cut, 0) << "the evaluation was not interrupted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Cancelled) << e.what();
      evaluates = false;
      grpo.run(each, [] { return false; });
    }
    EXPECT_EQ(last.value("step", 0), 3);
    return std::pair{last.at("grad_norm").get<double>(), last.at("loss").get<double>()};
  };
  const auto want = last_step(0);
  for (const int64_t cut : {3, 30, 100}) EXPECT_EQ(last_step(cut), want) << cut;
}

// A step that did not end takes the same problems when it is run again.
TEST(Interrupted, AStep) {
  GrpoOptions o = quick_options();
  o.schedule.steps = 2;
  const auto problems_of = [&](int64_t cut) {
    const language_test::Folder folder;
    std::vector<int64_t> asked_for;
    GrpoData data = sums();
    data.train = [&](int64_t k) {
      asked_for.push_back(k);
      return sums_problem(1, k);
    };
    Grpo grpo(make_backend("cpu"), tiny_model(), data, o, folder.path());
    asked_for.clear();  // of the checks in front
    int64_t asked = 0;
    try {
      const StopScope scope([&] { return cut > 0 && std::ssize(asked_for) > 2 && ++asked >= cut; });
      grpo.run({}, [] { return false; });
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Cancelled) << e.what();
      asked_for.resize(2);
      grpo.run({}, [] { return false; });
    }
    return asked_for;
  };
  EXPECT_THAT(problems_of(0), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(problems_of(5), problems_of(0));
}

}  // namespace
}  // namespace tenon::train
