#include "tenon/io/prompt_weights.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {
namespace {
constexpr double kStep = 1.1;  // of a plain bracket
constexpr size_t kShownOfNetwork = 60;
constexpr size_t kMaxNesting = 100;  // bounds the work for a prompt

// Parses one prompt. Weights are kept in double, so that products of 1.1 and 1/1.1 cancel to float accuracy.
class Parser {
 public:
  explicit Parser(std::string_view prompt) : rest_(prompt) {}

  std::vector<WeightedText> run() {
    while (!rest_.empty()) step();
    for (size_t start : round_) scale_from(start, kStep);
    for (size_t start : square_) scale_from(start, 1 / kStep);
    return joined();
  }

 private:
  struct Part {
    std::string text;
    double weight;
  };

  void step() {
    const char c = rest_.front();
    if (c == '\\') return escape();
    if (c == '(' || c == '[') {
      TENON_CHECK(Usage, round_.size() + square_.size() < kMaxNesting, "prompt")
          << "brackets nested deeper than " << kMaxNesting << " levels";
      (c == '(' ? round_ : square_).push_back(parts_.size());
      rest_.remove_prefix(1);
    } else if (c == ')' && !round_.empty()) {
      close(round_, kStep, 1);
    } else if (c == ']' && !square_.empty()) {
      close(square_, 1 / kStep, 1);
    } else if (c == ':' && !round_.empty() && explicit_weight()) {
      return;
    } else {
      const size_t end = rest_.find_first_of("\\()[]:", 1);
      const std::string_view text = rest_.substr(0, c == ')' || c == ']' || c == ':' ? 1 : end);
      add(text);
      rest_.remove_prefix(text.size());
    }
  }

  // A backslash before a bracket or another backslash gives that character; any other backslash is dropped.
  void escape() {
    rest_.remove_prefix(1);
    if (rest_.empty() || std::string_view("()[]\\").find(rest_.front()) == std::string_view::npos) return;
    add(rest_.substr(0, 1));
    rest_.remove_prefix(1);
  }

  // ": 1.5 )": closes the bracket with that weight. False if the text does not have this form.
  bool explicit_weight() {
    const auto skip_blanks = [&](size_t i) {
      while (i < rest_.size() && std::string_view(" \t\n\v\f\r").find(rest_[i]) != std::string_view::npos) ++i;
      return i;
    };
    size_t begin = skip_blanks(1), end = begin;
    if (end < rest_.size() && (rest_[end] == '+' || rest_[end] == '-')) ++end;
    const size_t digits = end;
    while (end < rest_.size() && (rest_[end] == '.' || (rest_[end] >= '0' && rest_[end] <= '9'))) ++end;
    const size_t bracket = skip_blanks(end);
    if (end == digits || bracket >= rest_.size() || rest_[bracket] != ')') return false;
    std::string_view number = rest_.substr(begin, end - begin);
    if (number.front() == '+') number.remove_prefix(1);
    double weight = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), weight);
    TENON_CHECK(Usage, parsed.ec == std::errc() && parsed.ptr == number.data() + number.size(), "prompt")
        << "the weight '" << shown(number) << "' is not a number";
    close(round_, weight, bracket + 1);
    return true;
  }

  void close(std::vector<size_t>& open, double factor, size_t length) {
    scale_from(open.back(), factor);
    open.pop_back();
    rest_.remove_prefix(length);
  }

  void scale_from(size_t start, double factor) {
    for (size_t i = start; i < parts_.size(); ++i) parts_[i].weight *= factor;
  }

  void add(std::string_view text) { parts_.push_back({std::string(text), 1.0}); }

  std::vector<WeightedText> joined() const {
    std::vector<WeightedText> out;
    double weight = 1;
    for (const Part& p : parts_) {
      TENON_CHECK(Usage, std::abs(p.weight) <= kMaxPromptWeight, "prompt")
          << "the weight of '" << shown(p.text) << "' must be a number from " << -kMaxPromptWeight << " to "
          << kMaxPromptWeight << ", got " << number_text(p.weight);
      if (!out.empty() && p.weight == weight)
        out.back().text += p.text;
      else
        out.push_back({p.text, static_cast<float>(p.weight)});
      weight = p.weight;
    }
    if (out.empty()) out.push_back({"", 1.0f});
    return out;
  }

  std::string_view rest_;
  std::vector<Part> parts_;
  std::vector<size_t> round_, square_;  // index of the first part inside each open bracket
};
}  // namespace

void refuse_extra_networks(std::string_view prompt, const std::string& where) {
  struct Syntax {
    std::string_view begin, what;
  };
  static constexpr Syntax kSyntaxes[] = {{"<lora:", "a LoRA"},
                                         {"<lyco:", "a LyCORIS network"},
                                         {"<hypernet:", "a hypernetwork"},
                                         {"embedding:", "a textual inversion"}};
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  const auto in_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  std::string text(prompt);
  std::transform(text.begin(), text.end(), text.begin(), lower);
  for (const auto& [begin, what] : kSyntaxes)
    for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
      const bool inside_a_word = in_word(begin[0]) && at > 0 && in_word(text[at - 1]);
      if (inside_a_word) continue;
      const size_t name = at + begin.size(), end = std::min(text.find_first_of(" \t\n\r>,()", name), text.size());
      if (end == name) continue;
      const size_t whole = end - at + (end < text.size() && text[end] == '>');
      throw Error(ErrorKind::Usage, where,
                  "'" + std::string(prompt.substr(at, std::min(whole, kShownOfNetwork))) + "' asks for " +
                      std::string(what) + ", which cannot be loaded" + (what == "a LoRA" ? " here" : ""),
                  what == "a LoRA" ? "use it in a single prompt, or pass it with --lora" : "remove it");
    }
}

std::vector<WeightedText> parse_prompt_weights(std::string_view prompt) { return Parser(prompt).run(); }

}  // namespace tenon
