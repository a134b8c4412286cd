#include "tenon/pipelines/chat_prompt.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "tenon/core/error.h"
#include "tenon/io/chat_template.h"

namespace tenon {
namespace {
using nlohmann::ordered_json;

// A character that should occur in no text, because Unicode reserves it as a noncharacter; another one if the text
// contains it anyway.
std::string mark_outside(const std::string& text) {
  for (char last = '\x90'; last <= '\xaf'; ++last) {  // U+FDD0 to U+FDEF
    std::string mark = std::string("\xef\xb7") + last;
    if (text.find(mark) == std::string::npos) return mark;
  }
  throw Error(ErrorKind::Usage, "messages", "contain every noncharacter from U+FDD0 to U+FDEF, but one must be unused");
}

// The value with f of every string in it, keys included.
ordered_json with_texts(const ordered_json& value, const std::function<std::string(const std::string&)>& f) {
  if (value.is_string()) return f(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  if (value.is_array()) {
    ordered_json out = ordered_json::array();
    for (const ordered_json& inner : value) out.push_back(with_texts(inner, f));
    return out;
  }
  ordered_json out = ordered_json::object();
  auto& members = out.get_ref<ordered_json::object_t&>();  // operator[] would compare every key with all before it
  for (const auto& [key, inner] : value.items()) members.emplace_back(f(key), with_texts(inner, f));
  return out;
}

// A message as transformers gives it to a template: without keys whose value is null, and with its reasoning, which has
// three names, under the two that templates read.
ordered_json prepared(const ordered_json& message) {
  if (!message.is_object()) return message;
  const ordered_json* reasoning = nullptr;
  for (const char* key : {"reasoning_content", "thinking", "reasoning"})
    if (const auto found = message.find(key); !reasoning && found != message.end() && !found->is_null())
      reasoning = &*found;
  ordered_json out = ordered_json::object();
  auto& members = out.get_ref<ordered_json::object_t&>();  // as above
  bool has_content = false;
  if (reasoning) {
    const auto own = message.find("thinking");
    members.emplace_back("thinking", own != message.end() && !own->is_null() ? *own : *reasoning);
  }
  for (const auto& [key, value] : message.items()) {
    if (value.is_null() || (reasoning && key == "thinking")) continue;
    const bool is_content = reasoning && key == "reasoning_content";
    members.emplace_back(key, is_content ? *reasoning : value);
    has_content |= is_content;
  }
  if (reasoning && !has_content) members.emplace_back("reasoning_content", *reasoning);
  return out;
}

ordered_json prepared_all(const ordered_json& messages) {
  if (!messages.is_array()) return messages;
  ordered_json out = ordered_json::array();
  for (const ordered_json& message : messages) out.push_back(prepared(message));
  return out;
}

ChatTemplate template_of(const ByteLevelTokenizer& t, const std::string& name) {
  TENON_CHECK(Model, t.chat_template(), name) << "has no chat template; `tenon complete` can continue texts with it";
  return ChatTemplate::compile(*t.chat_template(), name + " chat template");
}

std::string render(const ChatTemplate& chat, const ByteLevelTokenizer& t, const ordered_json& messages) {
  ordered_json variables{
      {"messages", messages}, {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", true}};
  for (const auto& [role, token] : t.named_tokens()) variables.emplace(role, token);
  return chat.render(variables);
}

std::vector<int32_t> control_in(const ByteLevelTokenizer& t, const std::vector<int32_t>& ids) {
  std::vector<int32_t> out;
  std::ranges::copy_if(ids, std::back_inserter(out), [&](int32_t id) { return t.is_special(id); });
  return out;
}

// The true text with marks in the control tokens that may come from messages. `marked` is the text rendered from marked
// messages. The two differ beyond the marks only if the template computes with control tokens of a message (splits at
// one, for example). Then only what both begin and end with tells which control tokens are the template's; others count
// as the messages'.
std::string protected_text(const ByteLevelTokenizer& t, const std::string& truth, const std::string& marked,
                           const std::string& mark) {
  std::string plain;
  std::vector<size_t> marks;  // where they were in `plain`
  for (size_t at = 0; at < marked.size();) {
    const size_t end = std::min(marked.find(mark, at), marked.size());
    plain.append(marked, at, end - at);
    if (end < marked.size()) marks.push_back(plain.size());
    at = end + mark.size();
  }
  if (plain == truth) return marked;
  const size_t most = std::min(plain.size(), truth.size());
  const auto front = static_cast<size_t>(
      std::mismatch(truth.begin(), truth.begin() + static_cast<std::ptrdiff_t>(most), plain.begin()).first -
      truth.begin());
  size_t back = 0;
  while (back < most - front && truth[truth.size() - 1 - back] == plain[plain.size() - 1 - back]) ++back;
  const auto is_unmarked = [&](size_t begin, size_t end) {
    const auto next = std::upper_bound(marks.begin(), marks.end(), begin);
    return next == marks.end() || *next >= end;
  };
  return t.break_control(truth, mark, [&](size_t begin, size_t end) {
    if (end <= front) return is_unmarked(begin, end);
    const size_t to_end = truth.size() - begin;
    return to_end <= back && is_unmarked(plain.size() - to_end, plain.size() - to_end + (end - begin));
  });
}

}  // namespace

std::string render_chat(const ByteLevelTokenizer& t, const ordered_json& messages, const std::string& name) {
  return render(template_of(t, name), t, prepared_all(messages));
}

std::vector<int32_t> encode_chat(const ByteLevelTokenizer& t, const ordered_json& messages, const std::string& name) {
  const ChatTemplate chat = template_of(t, name);
  const ordered_json given = prepared_all(messages);
  const std::string text = render(chat, t, given);
  std::string all = text;
  with_texts(given, [&](const std::string& part) {
    all += part;
    return part;
  });
  const std::string mark = mark_outside(all);
  const ordered_json broken =
      with_texts(given, [&](const std::string& part) { return t.break_beginnings(part, mark); });
  std::vector<int32_t> ids = t.encode_marked(text, mark);
  if (broken == given) return ids;
  const std::string marked = render(chat, t, broken);
  // Marks may change what a template compares and splits, so the true text counts if it has no control tokens but those
  // of a text where messages cannot make any.
  if (control_in(t, ids) == control_in(t, t.encode_marked(marked, mark))) return ids;
  return t.encode_marked(protected_text(t, text, marked, mark), mark);
}

}  // namespace tenon
