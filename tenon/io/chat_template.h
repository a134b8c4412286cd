// Chat templates: a conversation to the text that a model was trained on, as its tokenizer files describe it in Jinja.
//
// A subset of Jinja, what published templates use, rendered as transformers renders it (trim_blocks, lstrip_blocks,
// JSON as Python writes it):
//   tags      {{ }} {% %} {# #} with - and +; for (.. in .. if .. else), if, elif, else, set (also blocks and members
//   of
//             a namespace), break, continue, generation
//   values    strings, numbers, true, false, none, lists, mappings; x.y, x["y"], x[0], x[1:2:3]; + - * / // % ~;
//             == != < <= > >= in, not in; and, or, not; a if b else c; loop.index, .first, .previtem, ...
//   filters   trim tojson length count join upper lower capitalize title replace default d list map select reject
//             selectattr rejectattr first last reverse items dictsort string int safe
//   tests     defined undefined none string mapping iterable sequence number integer float boolean true false eq ne in
//             even odd divisibleby
//   methods   strip lstrip rstrip split startswith endswith replace upper lower capitalize title; get items keys values
//   functions namespace, range, raise_exception
// Everything else (macros, includes, strftime_now, ...) is refused when the template is compiled, or is undefined.
//
// Safe for templates of any origin: nothing but the data that is passed can be reached, compiling is linear, and
// rendering counts steps and bytes (jinja/value.h: Budget) and stops.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tenon {

/// Bytes of a template. The longest published ones have 20,000.
inline constexpr size_t kMaxChatTemplateBytes = size_t{1} << 20;

/// A compiled template. Immutable; safe to share between threads.
class ChatTemplate {
 public:
  /// Error(Model) with `where` and the line: not of the subset, nested too deep, too long, not UTF-8.
  static ChatTemplate compile(std::string_view source, const std::string& where);

  /// The text for `variables`, an object: "messages" (a list of {"role", "content", ...}), "add_generation_prompt",
  /// and where the template wants them "tools", "enable_thinking", "bos_token", "eos_token", ... Keys keep their order
  /// in the JSON that a template prints. Error(Usage): what raise_exception says, data that does not fit. Error(Model):
  /// more steps, memory or output than a template may use.
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace tenon
