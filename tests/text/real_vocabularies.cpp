#include "tests/text/real_vocabularies.h"

#include <algorithm>
#include <sstream>

#include "tenon/core/options.h"
#include "tenon/io/bpe.h"
#include "tenon/io/files.h"
#include "tests/support/base64.h"

namespace io_test {
namespace fs = std::filesystem;
using namespace tenon;
namespace {

using Ranks = std::unordered_map<std::string, int32_t>;

// The two parts that a token was merged from: the result of merging its bytes by lower ranks only.
std::pair<std::string, std::string> parts_of(const std::string& token, int32_t rank, const Ranks& ranks) {
  std::vector<std::string> parts;
  for (const char c : token) parts.emplace_back(1, c);
  while (parts.size() > 2) {
    size_t best = parts.size();
    int32_t lowest = rank;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && found->second < lowest) {
        lowest = found->second;
        best = i;
      }
    }
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  return {parts[0], parts[1]};
}

std::string in_alphabet(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += byte_alphabet()[static_cast<uint8_t>(c)];
  return out;
}

void add_control_tokens(TokenizerParts& parts) {
  int32_t id = 151643;
  const auto add = [&](const std::string& content, bool special) { parts.added.push_back({id++, content, special}); };
  for (const char* name :
       {"endoftext", "im_start", "im_end", "object_ref_start", "object_ref_end", "box_start", "box_end", "quad_start",
        "quad_end", "vision_start", "vision_end", "vision_pad", "image_pad", "video_pad"})
    add(std::string("<|").append(name).append("|>"), true);
  for (const char* text : {"<tool_call>", "</tool_call>"}) add(text, false);
  for (const char* name : {"fim_prefix", "fim_middle", "fim_suffix", "fim_pad", "repo_name", "file_sep"})
    add(std::string("<|").append(name).append("|>"), false);
  for (const char* text : {"<tool_response>", "</tool_response>", "<think>", "</think>"}) add(text, false);
}

}  // namespace

fs::path vocabulary_folder() { return cache_folder() / "fetched"; }

std::optional<fs::path> real_smollm2() {
  const fs::path path = vocabulary_folder() / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  return fs::exists(path) ? std::optional(path) : std::nullopt;
}

std::optional<TokenizerParts> real_qwen() {
  const fs::path path = vocabulary_folder() / "qwen.tiktoken";
  if (!fs::exists(path)) return std::nullopt;
  Ranks ranks;
  std::istringstream lines(read_file(path));
  std::string token;
  int32_t rank = 0;
  while (lines >> token >> rank) ranks[from_base64(token)] = rank;
  std::vector<std::pair<int32_t, const std::string*>> order;
  for (const auto& [bytes, r] : ranks) order.emplace_back(r, &bytes);
  std::sort(order.begin(), order.end());
  TokenizerParts out;
  for (const auto& [r, bytes] : order) {
    out.tokens[in_alphabet(*bytes)] = r;
    if (bytes->size() == 1) continue;
    const auto [left, right] = parts_of(*bytes, r, ranks);
    out.merges.emplace_back(in_alphabet(left), in_alphabet(right));
  }
  add_control_tokens(out);
  out.pre_tokenizer = PreTokenizer(WordPattern::Qwen2);
  out.nfc = true;
  return out;
}

}  // namespace io_test
