// Flags and output shared by verbs that generate text.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/cli/verb.h"
#include "tenon/pipelines/text_generator.h"

namespace tenon::cli {

/// -m --lora --max-tokens --temperature --top-k --top-p --min-p --repetition-penalty --stop -s --context --cache-limit
/// --slide --type --no-fusion --logprobs.
struct TextFlags {
  std::string model, adapter, type, cache_limit;
  std::vector<std::string> stop;
  int64_t max_tokens = 512, top_k = 0, seed = -1, context = 0;
  double temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  bool slide = false, no_fusion = false, logprobs = false;

  void declare(CLI::App& app);
  /// Opens the model, ready to generate.
  std::unique_ptr<TextGenerator> open(const Common& common) const;
  /// A request without a prompt: settings of the model's files, overridden by flags. Draws a seed if none is given.
  /// --temperature 0 takes the likeliest token; the sampling flags make the model draw.
  TextRequest request(const LanguageModel& model) const;

 private:
  SamplingChoice choice() const;
  const CLI::App* app_ = nullptr;
};

/// Prints text as it comes: unchanged to files and pipes; on a terminal without control characters.
void print_piece(const std::string& text);
/// A token as a line: its log-probability and its text.
void print_token(const TextToken& token);
/// A result as JSON, with tokens and log-probabilities if `logprobs`.
nlohmann::ordered_json text_json(const TextGenerator& generator, const TextRequest& request, const TextResult& result,
                                 bool logprobs);
/// Logs the speed.
void log_speed(const TextRequest& request, const TextResult& result);
/// Error(Usage) at `what` for text that is not UTF-8.
void check_utf8(const std::string& what, const std::string& text);

}  // namespace tenon::cli
