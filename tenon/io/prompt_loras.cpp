#include "tenon/io/prompt_loras.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {
namespace {

constexpr std::string_view kBegin = "<lora:";

size_t find_begin(std::string_view text, size_t from) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  const auto* const it = std::search(text.begin() + from, text.end(), kBegin.begin(), kBegin.end(), same);
  return static_cast<size_t>(it - text.begin());
}

bool stays_inside(const std::string& name) {
  const std::filesystem::path path(name);
  return !path.is_absolute() && std::ranges::none_of(path, [](const auto& part) { return part == ".."; });
}

PromptLora parse(std::string_view inside, const std::string& where) {
  PromptLora out;
  const size_t colon = std::min(inside.find(':'), inside.size());
  out.name = inside.substr(0, colon);
  const std::string tag = "'<lora:" + shown(inside) + ">': ";
  TENON_CHECK(Usage, !out.name.empty() && out.name.find('\0') == out.name.npos && stays_inside(out.name), where)
      << tag << "expected the name of a file in the folder of LoRAs";
  if (colon == inside.size()) return out;
  const std::optional<double> weight = lora_weight(inside.substr(colon + 1));
  TENON_CHECK(Usage, weight && std::isfinite(*weight), where)
      << tag << "expected <lora:FILE:WEIGHT> with a number as weight";
  out.weight = *weight;
  return out;
}

}  // namespace

std::optional<double> lora_weight(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

std::vector<PromptLora> take_loras(std::string& prompt, const std::string& where) {
  std::vector<PromptLora> out;
  std::string rest;
  size_t from = 0;
  while (true) {
    const size_t at = find_begin(prompt, from);
    rest.append(prompt, from, at - from);
    if (at == prompt.size()) break;
    const size_t begin = at + kBegin.size(), end = prompt.find('>', begin);
    TENON_CHECK(Usage, end != prompt.npos, where)
        << "'" << shown(std::string_view(prompt).substr(at)) << "' has no '>'";
    out.push_back(parse(std::string_view(prompt).substr(begin, end - begin), where));
    from = end + 1;
    const bool blank_before = rest.empty() || rest.back() == ' ';
    if (blank_before && from < prompt.size() && prompt[from] == ' ') ++from;
  }
  if (!out.empty())
    while (rest.ends_with(' ')) rest.pop_back();
  prompt = std::move(rest);
  return out;
}

}  // namespace tenon
