// Names of the grader's enums and the reader of prompts.txt.
#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/grader/grader.h"

namespace tenon::grader {
namespace {

constexpr std::array<const char*, kShapes> kShapeNames = {"circle", "square", "triangle", "star", "ring", "oval"};
constexpr std::array<const char*, kColors> kColorNames = {"red",  "green", "blue",  "yellow", "orange", "purple",
                                                          "pink", "cyan",  "black", "white",  "gray"};
constexpr std::array<const char*, 5> kRelationNames = {"", "left of", "right of", "above", "below"};

template <class Enum, size_t N>
Enum find(const std::array<const char*, N>& names, const std::string& name) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return Enum(i);
  }
  throw std::runtime_error("unknown name in prompt list: '" + name + "'");
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

std::string name_of(Color color) { return kColorNames[size_t(color)]; }
std::string name_of(Shape shape) { return kShapeNames[size_t(shape)]; }

Prompt parse_prompt(const std::string& line) {
  const std::vector<std::string> parts = split(line, '\t');
  if (parts.size() != 5) throw std::runtime_error("expected 5 fields in prompt list: '" + line + "'");
  Prompt prompt;
  prompt.seed = uint32_t(std::stoul(parts[0]));
  prompt.text = parts[1];
  prompt.expected.background = find<Color>(kColorNames, parts[2]);
  for (const std::string& object : split(parts[3], ';')) {
    std::istringstream words(object);
    std::string color, shape;
    words >> color >> shape;
    prompt.expected.objects.push_back({find<Shape>(kShapeNames, shape), find<Color>(kColorNames, color)});
  }
  prompt.expected.relation = find<Relation>(kRelationNames, parts[4]);
  return prompt;
}

std::vector<Prompt> read_prompts(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<Prompt> prompts;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') prompts.push_back(parse_prompt(line));
  }
  return prompts;
}

}  // namespace tenon::grader
