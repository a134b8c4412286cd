// Chat templates: from a conversation to the text format that a model was trained on, as its tokenizer files give it
// in Jinja.
//
// Supports the subset of Jinja that published templates use, rendered as transformers renders it (trim_blocks,
// lstrip_blocks, JSON as Python writes it):
//   tags      {{ }} {% %} {# #} with - and +; for (.. in .. if .. else), if, elif, else, set (also blocks and members
//             of a namespace), break, continue, generation
//   values    strings, numbers, true, false, none, lists, mappings; x.y, x["y"], x[0], x[1:2:3]; + - * / // % ~;
//             == != < <= > >= in, not in; and, or, not; a if b else c; loop.index, .first, .previtem, .depth, ...
//   filters   trim tojson length count join upper lower capitalize title replace default d list map select reject
//             selectattr rejectattr first last reverse items dictsort string int safe
//             (select, map, reverse, ... return generators, as in jinja2)
//   tests     defined undefined none string mapping iterable sequence number integer float boolean true false eq ne in
//             even odd divisibleby
//   methods   strip lstrip rstrip split startswith endswith replace upper lower capitalize title; get items keys values
//   functions namespace, range, raise_exception
// Everything else (macros, includes, strftime_now, ...) is refused when the template is compiled, or is undefined.
//
// Safe for untrusted templates: they can reach nothing but the data passed in, compiling is linear, and rendering stops
// when it has used up its steps or bytes (jinja/value.h: Budget).
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tenon {

/// Longest template, in bytes. The longest published ones have 20,000.
inline constexpr size_t kMaxChatTemplateBytes = size_t{1} << 20;

/// A compiled template. Immutable; safe to share between threads.
class ChatTemplate {
 public:
  /// Error(Model) with `where` and the line: outside the subset, nested too deep, too long, not UTF-8.
  static ChatTemplate compile(std::string_view source, const std::string& where);

  /// Renders with `variables`, an object: "messages" (a list of {"role", "content", ...}), "add_generation_prompt", and
  /// if the template uses them "tools", "enable_thinking", "bos_token", "eos_token", ... JSON that a template prints
  /// keeps the order of keys. Error(Usage): the message of raise_exception, or data that does not fit the template.
  /// Error(Model): the template exceeds its steps, memory or output, or fails whatever the data (divides by zero).
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace tenon
