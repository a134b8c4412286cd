// tenon complete: continues a text.
#include <algorithm>
#include <iostream>
#include <limits>
#include <map>

#include "apps/cli/standard_input.h"
#include "apps/cli/text_flags.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/core/utf8.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {

constexpr size_t kMaxText = size_t{64} << 20;

struct CompleteFlags {
  TextFlags text;
  std::string argument;
  std::vector<std::string> prompts, files;
  int64_t batch_size = 8;
  const CLI::App* app = nullptr;
};

std::vector<std::string> texts_to_continue(const CompleteFlags& f) {
  const bool argument = f.app->count("PROMPT") > 0;
  const int ways = argument + !f.prompts.empty() + !f.files.empty();
  TENON_CHECK(Usage, ways == 1, "prompt")
      << (ways ? "is given in more than one way: use PROMPT, --prompt or --prompt-file"
               : "missing: tenon complete \"Once upon a time\"");
  const auto from_input = std::ranges::count(f.prompts, "-") + std::ranges::count(f.files, "-");
  TENON_CHECK(Usage, from_input <= 1, "prompt")
      << "standard input can be read only once, not " << from_input << " times";
  std::vector<std::string> texts;
  const auto add = [&](const std::string& named, bool from_file) {
    texts.push_back(named == "-" ? read_standard_input("prompt", kMaxText)
                    : from_file  ? read_argument_file(named, kMaxText)
                                 : named);
    if (from_file || named == "-") texts.back() = std::string(without_byte_order_mark(texts.back()));
  };
  if (argument) add(f.argument, false);
  for (const std::string& p : f.prompts) add(p, false);
  for (const std::string& p : f.files) add(p, true);
  return texts;
}

void check_seeds(int64_t first, int64_t texts) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  TENON_CHECK(Usage, first <= kLargest - (texts - 1), "--seed")
      << first << ": " << texts << " texts take as many seeds, and the largest is " << kLargest;
}

void write_one(const CompleteFlags& f, const Common& common, TextGenerator& generator, const TextRequest& r) {
  const bool lines = f.text.logprobs;
  const TextResult result = generator.generate(r, [&](const TextToken& t) {
    if (common.json) return;
    if (lines)
      print_token(t);
    else
      print_piece(t.text);
  });
  if (common.json)
    std::cout << json_text(text_json(generator, r, result, f.text.logprobs)) << "\n";
  else if (!lines)
    print_piece("\n");
  log_speed(r, result);
}

// Generates side by side; prints one line or object per text in the order of the prompts, each as soon as those before
// it are done. Returns the exit code, that of the first text that fails: the others are still written. `unread`: why a
// request has no tokens, by its index.
int write_all(const CompleteFlags& f, const Common& common, TextGenerator& generator,
              const std::vector<TextRequest>& requests, const std::map<size_t, Error>& unread) {
  TENON_CHECK(Usage, common.json || !f.text.logprobs, "--logprobs") << "needs --json for several prompts";
  int code = 0;
  generate_all(generator, requests, f.batch_size, [&](const EndedText& text) {
    const auto i = static_cast<size_t>(text.id);
    if (text.error) {
      const auto why = unread.find(i);
      const Error& error = why == unread.end() ? *text.error : why->second;
      spdlog::error("prompt {}: {}", i + 1, error.what());
      if (code == 0) code = error.exit_code();
      return;
    }
    std::cout << (common.json ? json_text(text_json(generator, requests[i], text.result, f.text.logprobs))
                              : escaped(text.result.text))
              << std::endl;
  });
  return code;
}

int run_complete(const CompleteFlags& f, const Common& common) {
  const std::vector<std::string> texts = texts_to_continue(f);
  check_seeds(f.text.seed, std::ssize(texts));
  if (texts.size() == 1) check_utf8("prompt", texts.front());
  const std::unique_ptr<TextGenerator> generator = f.text.open(common);
  const ByteLevelTokenizer& tokenizer = generator->model().tokenizer();
  const TextRequest first = f.text.request(generator->model());
  std::vector<TextRequest> requests(texts.size(), first);
  std::map<size_t, Error> unread;
  for (size_t i = 0; i < texts.size(); ++i) try {
      requests[i].seed += i;
      check_utf8("prompt", texts[i]);
      requests[i].prompt = tokenizer.encode_whole(texts[i]);
    } catch (const Error& e) {
      if (e.where() != "prompt") throw;
      unread.emplace(i, e);
    }
  if (first.sampling.draw) spdlog::info("seed {}", first.seed);
  if (requests.size() > 1) return write_all(f, common, *generator, requests, unread);
  write_one(f, common, *generator, requests.front());
  return 0;
}

Action declare_complete(CLI::App& app, const Common& common) {
  const auto f = std::make_shared<CompleteFlags>();
  f->app = &app;
  app.add_option("PROMPT", f->argument, "text to continue; -: read it from standard input");
  several(
      app.add_option("-p,--prompt", f->prompts, "text to continue; repeat it for several texts, continued together"));
  several(app.add_option("--prompt-file", f->files, "file with the text; -: standard input; may be repeated as -p"));
  app.add_option("--batch-size", f->batch_size, "how many of several texts are written together; text i uses seed + i")
      ->transform(whole_number())
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  f->text.declare(app);
  app.add_flag(
      "--logprobs", f->text.logprobs,
      "print each token with its log-probability: in the JSON object, else one line per token instead of the text");
  return [f, &common] { return run_complete(*f, common); };
}

const RegisterVerb kComplete{{"complete", "continue a text with a language model", declare_complete}};

}  // namespace
}  // namespace tenon::cli
