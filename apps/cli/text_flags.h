// Flags and output that verbs which write text share.
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
  /// The model, ready to write.
  std::unique_ptr<TextGenerator> open(const Common& common) const;
  /// A request without a prompt: what the model's files say, but for what flags say. Draws a seed where none is given.
  /// --temperature 0 takes the likeliest token; the flags of drawing make the model draw.
  TextRequest request(const LanguageModel& model) const;

 private:
  SamplingChoice choice() const;
  const CLI::App* app_ = nullptr;
};

/// Prints text as it comes: as it is into files and pipes; on a terminal without what would control it.
void print_piece(const std::string& text);
/// A token as a line: its log-probability, and its text as one line.
void print_token(const TextToken& token);
/// What a result is as JSON; tokens with log-probabilities where they were asked for.
nlohmann::ordered_json text_json(const TextGenerator& generator, const TextRequest& request, const TextResult& result,
                                 bool logprobs);
/// Says in the log how fast it was.
void log_speed(const TextRequest& request, const TextResult& result);
/// Error(Usage) at `what` for text that is not UTF-8.
void check_utf8(const std::string& what, const std::string& text);

}  // namespace tenon::cli
