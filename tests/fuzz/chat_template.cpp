// Any bytes as a chat template, and after a zero byte any JSON as its variables: an Error(Model), an Error(Usage), or
// valid UTF-8 text.
#include "tenon/io/chat_template.h"

#include <algorithm>
#include <cstdlib>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"

namespace {
nlohmann::ordered_json variables(std::string_view text) {
  nlohmann::ordered_json out = nlohmann::ordered_json::parse(text, nullptr, false);
  if (out.is_object()) return out;
  return {{"messages",
           {{{"role", "system"}, {"content", "Be brief."}},
            {{"role", "user"}, {"content", "Hi <think>\n"}},
            {{"role", "assistant"}, {"content", ""}, {"tool_calls", {{{"name", "f"}, {"arguments", {{"x", 1.5}}}}}}}}},
          {"add_generation_prompt", true},
          {"tools", {{{"name", "f"}}}}};
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\0'), input.size());
  try {
    const ChatTemplate chat = ChatTemplate::compile(input.substr(0, cut), "fuzz");
    const std::string text = chat.render(variables(input.substr(std::min(cut + 1, size))));
    if (first_invalid_utf8(text)) std::abort();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Model && e.kind() != ErrorKind::Usage) std::abort();
  }
  return 0;
}
