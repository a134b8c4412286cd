// tenon train METHOD: trains models.
#include "apps/cli/train.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/cli/progress.h"
#include "tenon/core/error.h"
#include "tenon/core/options.h"
#include "tenon/io/json.h"
#include "tenon/train/metrics.h"

namespace tenon::cli {

std::string both_spellings(const std::string& name) {
  std::string ours = name;
  std::ranges::replace(ours, '_', '-');
  return ours == name ? "--" + name : "--" + ours + ",--" + name;
}

void declare_count(CLI::App& app, const std::string& flag, int64_t& value, const char* help, int64_t least) {
  app.add_option(flag, value, help)
      ->transform(whole_number())
      ->check(CLI::Range(least, int64_t{1} << 40).description(""))
      ->capture_default_str();
}

void declare_warm_up(CLI::App& app, int64_t& steps) {
  declare_count(app, both_spellings("lr_warmup_steps") + "," + both_spellings("warmup_steps"), steps,
                "steps over which the learning rate rises linearly to its value; 0: none", 0);
}

void declare_seed(CLI::App& app, uint64_t& seed, const char* help) {
  const auto check = [](const std::string& text) {
    return text.starts_with("-") ? "expected a number of at least 0, got " + text : std::string();
  };
  app.add_option("-s,--seed", seed, help)
      ->transform(whole_number())
      ->check(CLI::Validator(check, "", "seed"))
      ->capture_default_str();
}

LiveLine::LiveLine(const Common& common, const RunShown& run)
    : run_(run),
      quiet_(common.quiet),
      json_(common.json),
      terminal_(isatty(STDERR_FILENO) == 1 && option(Option::Term) != "dumb") {}

LiveLine::~LiveLine() {
  if (drawn_) std::fputc('\n', stderr);
}

void LiveLine::operator()(const nlohmann::ordered_json& m) {
  if (json_) std::cout << json_text(m) << std::endl;
  const std::string text = run_.text(m);
  if (quiet_ || text.empty()) return;
  const int64_t step = m.at("step");
  if (train::is_evaluation(m)) {
    std::fprintf(stderr, "%sstep %lld: %s\n", drawn_ ? "\r\x1b[K" : "", static_cast<long long>(step), text.c_str());
    drawn_ = false;
    return;
  }
  const double spent = seconds_since(begin_);
  const double each = spent / static_cast<double>(std::max<int64_t>(step - run_.first, 1));
  std::string line = "step " + std::to_string(step) + "/" + std::to_string(run_.steps) + "  " + text + "  ";
  line += std::to_string(std::llround(each * static_cast<double>(run_.steps - step))) + " s left";
  if (terminal_)
    std::fprintf(stderr, "\r%s\x1b[K", fitted(line).c_str());
  else
    std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
  drawn_ = terminal_;
}

namespace {

Action declare_train(CLI::App& app, const Common& common) {
  const auto chosen = std::make_shared<Action>();
  const auto add = [&](const char* name, const char* help, Action (*declare)(CLI::App&, const Common&)) {
    CLI::App* method = app.add_subcommand(name, help);
    Action run = declare(*method, common);
    method->callback([chosen, run = std::move(run)] { *chosen = run; });
  };
  add("grpo", "train a language model with rewards (GRPO)", declare_train_grpo);
  add("lora", "train a LoRA of an image model on pictures", declare_train_lora);
  return [chosen] {
    if (!*chosen) throw Error(ErrorKind::Usage, "train", "no method given, expected grpo or lora");
    return (*chosen)();
  };
}

const RegisterVerb kTrain{{"train", "train a language model with rewards, or a LoRA on pictures", declare_train}};

}  // namespace
}  // namespace tenon::cli
