// Emphasis in prompts, in the syntax of AUTOMATIC1111's web UI.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// Longest prompt in bytes: 65,536 make up to 874 CLIP windows, all of which every step attends to.
inline constexpr size_t kMaxPromptBytes = 1 << 16;

/// Largest absolute weight of a part: far beyond useful values, and more than the deepest plain brackets give.
inline constexpr double kMaxPromptWeight = 1e5;

/// A stretch of a prompt and its weight.
struct WeightedText {
  std::string text;
  float weight = 1.0f;
  bool operator==(const WeightedText&) const = default;
};

/// Splits a prompt into parts, each of one weight, in order.
///
///   (a)      1.1 times      ((a))    1.21 times
///   [a]      1/1.1 times    (a:1.5)  1.5 times
///   \( \) \[ \] \\           the character itself
///
/// Nested weights multiply. An unclosed bracket extends to the end; an unopened closing bracket, and ":1.5" outside
/// brackets, are text. Neighbours of equal weight are joined; no part is empty, except that a prompt without any text
/// gives one empty part. Error(Usage) if a weight like "1.2.3" is not a number, a part's weight is beyond
/// kMaxPromptWeight, or brackets nest deeper than 100 levels.
std::vector<WeightedText> parse_prompt_weights(std::string_view prompt);

/// Error(Usage) with `where` for a prompt that names an extra network, in the syntax of AUTOMATIC1111's web UI and
/// ComfyUI: <lora:name:1>, <lyco:name>, <hypernet:name:0.5>, embedding:name. As plain text they would be drawn. Only
/// LoRAs can be loaded, and take_loras has already removed them from prompts (io/prompt_loras.h).
void refuse_extra_networks(std::string_view prompt, const std::string& where);

}  // namespace tenon
