#include "apps/cli/text_flags.h"

#include <unistd.h>

#include <iostream>

#include "apps/cli/parts.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/core/utf8.h"
#include "tenon/io/random.h"
#include "tenon/pipelines/offload_size.h"

namespace tenon::cli {
namespace {

constexpr double kMaxNumber = 1e6;

// CLI11 accepts "nan" as a number in every range.
CLI::Validator number_where(const std::function<bool(double)>& good, const char* expected) {
  return CLI::Validator(
      [=](const std::string& text) {
        const std::optional<double> value = decimal_number(text);
        return value && good(*value) ? std::string() : "'" + escaped(text) + "': expected " + expected;
      },
      "NUMBER");
}

CLI::Validator number_in(double low, double high, const char* expected) {
  return number_where([=](double v) { return v >= low && v <= high; }, expected);
}

}  // namespace

void TextFlags::declare(CLI::App& app) {
  app_ = &app;
  offer(app.add_option(
            "-m,--model", model,
            "language model: a folder, a .gguf file, or a name in TENON_MODEL_DIR (default: sums, the embedded one)"),
        model_names(TextGenerator::kAbility), Beside::Files);
  offer(app.add_option("--lora", adapter,
                       "folder of a low-rank adapter (LoRA) for this model, as PEFT and train grpo write it"),
        {}, Beside::Files);
  app.add_option("--max-tokens", max_tokens, "maximum number of tokens to write; 0: as many as fit in the context")
      ->transform(whole_number())
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--temperature", temperature,
                 "sampling temperature, 1e-6 or more; 0: always take the likeliest token (default: the model's)")
      ->check(number_where([](double v) { return v == 0 || (v >= kLeastDivisor && v <= kMaxNumber); },
                           "0 (greedy), or a number from 1e-6 to 1e6"));
  app.add_option("--top-k", top_k, "sample from the k likeliest tokens; 0: from all (default: the model's)")
      ->transform(whole_number())
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  app.add_option("--top-p", top_p,
                 "sample from the likeliest tokens that add up to this probability (default: the model's)")
      ->check(number_in(1e-9, 1, "a number from 1e-9 to 1"));
  app.add_option("--min-p", min_p, "drop tokens below this fraction of the largest probability (default: the model's)")
      ->check(number_in(0, 1, "a number from 0 to 1"));
  app.add_option("--repetition-penalty", repetition_penalty,
                 "divide the scores of tokens that already occurred by this; 1: no penalty (default: the model's)")
      ->check(number_in(kLeastDivisor, kMaxNumber, "a number from 1e-6 to 1e6"));
  several(app.add_option("--stop", stop, "stop before this text, which may be a control token; may be repeated"));
  app.add_option("-s,--seed", seed, "random seed; -1: pick one and report it")
      ->transform(whole_number())
      ->capture_default_str();
  app.add_option("--context", context,
                 "maximum number of tokens of prompt and text together (default: the model's positions)")
      ->transform(whole_number())
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app.add_option("--cache-limit", cache_limit,
                 "memory limit for keys and values, such as 2GB (a bare number is in GiB); texts that do not fit wait "
                 "for earlier ones, and a text is limited to the tokens that fit (default: as memory allows)");
  app.add_flag("--slide", slide, "when the context is full, drop its first half and continue");
  declare_type(app, type);
  app.add_flag("--no-fusion", no_fusion, "run every node as its own launch, for comparison");
}

std::unique_ptr<TextGenerator> TextFlags::open(const Common& common) const {
  TextOptions options;
  options.device = common.device_name();
  options.threads = common.backend_options().threads;
  if (!type.empty()) options.type = NetworkType::parse(type);
  options.fusion = !fusion_is_off(no_fusion);
  options.fold_scales = !folding_is_off(false);
  options.adapter = adapter;
  options.context = context;
  if (app_->count("--cache-limit") > 0) options.cache_limit = parse_size(cache_limit, "--cache-limit");
  auto generator = open_as<TextGenerator>(model, options);
  spdlog::info("{}: {}, {}", generator->model().name(), generator->type().text(), generator->backend().describe());
  return generator;
}

SamplingChoice TextFlags::choice() const {
  const auto given = [&](const char* flag, auto value) {
    return app_->count(flag) > 0 ? std::optional(value) : std::nullopt;
  };
  return {.temperature = given("--temperature", temperature),
          .top_p = given("--top-p", top_p),
          .min_p = given("--min-p", min_p),
          .repetition_penalty = given("--repetition-penalty", repetition_penalty),
          .top_k = given("--top-k", top_k)};
}

TextRequest TextFlags::request(const LanguageModel& of) const {
  TENON_CHECK(Usage, seed >= -1, "--seed") << seed << ": expected 0 or more, or -1 to pick one";
  TextRequest r;
  r.max_tokens = max_tokens;
  r.sampling = chosen(of.sampling(), choice());
  r.seed = seed < 0 ? draw_seed() : static_cast<uint64_t>(seed);
  for (const std::string& text : stop) check_utf8("--stop", text);
  r.stop = stop;
  r.slide = slide;
  return r;
}

void print_piece(const std::string& text) {
  static const bool terminal = isatty(STDOUT_FILENO) == 1;
  std::string out = text;
  if (terminal) {
    out.clear();
    for (size_t from = 0; from < text.size();) {
      const size_t end = std::min(text.find_first_of("\n\t", from), text.size());
      out += escaped(std::string_view(text).substr(from, end - from));
      if (end < text.size()) out += text[end];
      from = end + 1;
    }
  }
  std::cout << out << std::flush;
}

void print_token(const TextToken& token) {
  std::cout << number_text(token.log_probability) << "\t" << token.id << "\t" << escaped(token.text) << "\n";
}

nlohmann::ordered_json text_json(const TextGenerator& generator, const TextRequest& request, const TextResult& result,
                                 bool logprobs) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  nlohmann::ordered_json out{
      {"model", generator.model().name()},
      {"text", result.text},
      {"finish_reason", finish_reason(result.end)},
      {"usage", {{"prompt_tokens", request.prompt.size()}, {"completion_tokens", result.tokens.size()}}},
      {"type", generator.type().text()}};
  if (result.end != TextEnd::Cancelled) out["usage"]["cached_tokens"] = result.reused;  // not known then
  if (request.sampling.draw) out["seed"] = request.seed;
  if (logprobs) {
    for (const TextToken& t : result.tokens)
      tokens.push_back({{"id", t.id}, {"logprob", t.log_probability}, {"text", t.text}});
    out["tokens"] = tokens;
  }
  return out;
}

void log_speed(const TextRequest& request, const TextResult& result) {
  const size_t runs = result.tokens.empty() ? 0 : result.tokens.size() - 1;  // the prompt's run gives the first
  spdlog::info("prompt: {} tokens ({} of them cached) in {:.3f} s; then {:.1f} tokens/s", request.prompt.size(),
               result.reused, result.prompt_seconds,
               result.token_seconds > 0 ? static_cast<double>(runs) / result.token_seconds : 0.0);
}

void check_utf8(const std::string& what, const std::string& text) {
  if (const auto at = first_invalid_utf8(text))
    throw Error(ErrorKind::Usage, what, "is not UTF-8: byte " + std::to_string(*at) + " is not part of a character");
}

}  // namespace tenon::cli
