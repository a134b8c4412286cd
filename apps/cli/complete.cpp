// tenon complete: a text that goes on.
#include <iostream>

#include "apps/cli/standard_input.h"
#include "apps/cli/text_flags.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {

constexpr size_t kMostText = size_t{64} << 20;

struct CompleteFlags {
  TextFlags text;
  std::string argument, prompt, file;
  const CLI::App* app = nullptr;
};

std::string text_to_continue(const CompleteFlags& f) {
  const auto given = [&](const char* flag) { return f.app->count(flag) > 0; };
  const int count = given("PROMPT") + given("--prompt") + given("--prompt-file");
  TENON_CHECK(Usage, count == 1, "prompt")
      << (count ? "given more than once" : "missing: tenon complete \"Once upon a time\"");
  const bool from_file = given("--prompt-file");
  const std::string& named = from_file ? f.file : given("--prompt") ? f.prompt : f.argument;
  std::string text = named == "-" ? read_standard_input("prompt", kMostText)
                     : from_file  ? read_argument_file(named, kMostText)
                                  : named;
  check_utf8("prompt", text);
  return text;
}

int run_complete(const CompleteFlags& f, const Common& common) {
  const std::string prompt = text_to_continue(f);
  const std::unique_ptr<TextGenerator> generator = f.text.open(common);
  const ByteLevelTokenizer& tokenizer = generator->model().tokenizer();
  TextRequest r = f.text.request(generator->model());
  r.prompt = tokenizer.prefix();
  const std::vector<int32_t> ids = tokenizer.encode(prompt);
  r.prompt.insert(r.prompt.end(), ids.begin(), ids.end());
  if (r.sampling.draw) spdlog::info("seed {}", r.seed);
  const bool lines = f.text.logprobs;
  const TextResult result = generator->generate(r, [&](const TextToken& t) {
    if (common.json) return;
    if (lines)
      print_token(t);
    else
      print_piece(t.text);
  });
  if (common.json)
    std::cout << json_text(text_json(*generator, r, result, f.text.logprobs)) << "\n";
  else if (!lines)
    print_piece("\n");
  log_speed(r, result);
  return 0;
}

Action declare_complete(CLI::App& app, const Common& common) {
  const auto f = std::make_shared<CompleteFlags>();
  f->app = &app;
  app.add_option("PROMPT", f->argument, "the text to go on with; - reads standard input");
  app.add_option("-p,--prompt", f->prompt, "the text to go on with");
  app.add_option("--prompt-file", f->file, "file with the text; - reads standard input");
  f->text.declare(app);
  app.add_flag("--logprobs", f->text.logprobs,
               "tokens with their log-probabilities: in the JSON object, else a line a token instead of the text");
  return [f, &common] { return run_complete(*f, common); };
}

const RegisterVerb kComplete{{"complete", "go on with a text", declare_complete}};

}  // namespace
}  // namespace tenon::cli
