// Methods, and the attributes of values.
#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "tenon/core/utf8.h"
#include "tenon/io/jinja/library.h"
#include "tenon/io/jinja/strings.h"

namespace tenon::jinja {
namespace {

// The methods that can be called.
constexpr std::array<std::string_view, 15> kMethods = {"capitalize", "endswith", "get",     "items",  "keys",
                                                       "lower",      "lstrip",   "replace", "rstrip", "split",
                                                       "startswith", "strip",    "title",   "upper",  "values"};

// Python's methods of mappings, strings and lists, which `value.name` finds before a mapping's key of that name. Those
// that modify are undefined in a sandbox.
constexpr std::string_view kOfDict[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::string_view kModifyDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kOfList[] = {"copy", "count", "index"};
constexpr std::string_view kOfString[] = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The method of that name, or nothing.
bool has_method(const Value& v, std::string_view name) {
  if (v.is_dict()) return is_one_of(kOfDict, name);
  if (v.is_string()) return is_one_of(kOfString, name);
  if (v.is_list(ListKind::Plain)) return is_one_of(kOfList, name);
  return v.is_sequence() && name != "copy" && is_one_of(kOfList, name);
}

Value split(const Call& c) {
  const std::string& text = c.subject.string();
  const Value separator = c.argument(0, "sep"), most = c.argument(1, "maxsplit");
  c.budget.make(split_bytes(text));
  const int64_t count = most.is_int() ? most.integer() : -1;
  if (separator.is_undefined() || separator.is_none()) return split_at_space(text, count);
  return split_at(text, string_of(separator, "split"), count);
}

// The part of a string that startswith and endswith look at; nothing if it begins beyond the end.
std::optional<std::string_view> part_of(const Call& c, const std::string& text) {
  const Value begin = c.argument(1, "start"), end = c.argument(2, "end");
  const bool whole = (begin.is_undefined() || begin.is_none()) && (end.is_undefined() || end.is_none());
  if (whole) return text;
  const std::vector<size_t> starts = starts_of(text, c.budget);
  const auto length = static_cast<int64_t>(starts.size()) - 1;
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (v.is_undefined() || v.is_none()) return otherwise;
    if (!v.is_int()) throw RenderError{"startswith: expected an integer bound, found " + described(v)};
    return v.integer() < 0 ? std::max<int64_t>(v.integer() + length, 0) : v.integer();
  };
  const int64_t from = bound(begin, 0), to = std::min(bound(end, length), length);
  if (from > length || from > to) return std::nullopt;
  const size_t first = starts[static_cast<size_t>(from)];
  return std::string_view(text).substr(first, starts[static_cast<size_t>(to)] - first);
}

// startswith, endswith: one string, or a tuple of them.
bool begins_or_ends(const Call& c, bool begins) {
  const Value what = c.argument(0, "prefix");
  const auto text = part_of(c, c.subject.string());
  const auto fits = [&](const Value& part) {
    const std::string& s = string_of(part, begins ? "startswith" : "endswith");
    c.budget.work(Budget::kStep + s.size());
    return text && (begins ? text->starts_with(s) : text->ends_with(s));
  };
  if (!what.is_list(ListKind::Tuple)) return fits(what);
  return std::any_of(what.list().begin(), what.list().end(), fits);
}

Value dict_method(const std::string& name, const Call& c) {
  const Dict& dict = c.subject.dict();
  if (name == "get") {
    const Value* found = c.budget.find(dict, string_of(c.argument(0, "key"), "get"));
    if (found) return *found;
    const Value given = c.argument(1, "default");
    return given.is_undefined() ? Value(None{}) : given;
  }
  if (name == "items") return {pairs_of(c.subject, "items", c.budget), ListKind::Items};
  if (name == "keys") return {items_of(c.subject, c.budget), ListKind::Keys};
  if (name != "values") throw RenderError{"a mapping has no method '" + name + "'"};
  List out;
  c.budget.make(dict.items().size() * sizeof(Value));
  for (const auto& [key, value] : dict.items()) out.push_back(value);
  return {std::move(out), ListKind::Values};
}

}  // namespace

Value replace(const Call& c) {
  const Value from = c.argument(0, "old"), to = c.argument(1, "new"), most = c.argument(2, "count");
  return replaced(to_text(c.subject, c.budget), string_of(from, "replace"), string_of(to, "replace"),
                  most.is_int() ? most.integer() : -1, c.budget);
}

List pairs_of(const Value& v, const char* what, Budget& budget) {
  List out;
  if (v.is_undefined()) return out;
  if (!v.is_dict()) throw RenderError{std::string(what) + ": expected a mapping, found " + described(v)};
  budget.make(v.dict().items().size() * 4 * sizeof(Value));
  for (const auto& [key, value] : v.dict().items()) out.push_back(Value(List{key, value}, ListKind::Tuple));
  return out;
}

bool is_method(std::string_view name) { return is_one_of(kMethods, name); }

Value attribute_of(const Value& v, const std::string& name, Budget& budget) {
  budget.work(Budget::kStep);
  if (has_method(v, name)) return Function{name, true};
  if (v.is_dict() && is_one_of(kModifyDict, name)) return Value::undefined(Value(name));
  return member_of(v, Value(name), budget);
}

Value item_of(const Value& v, const Value& key, Budget& budget) {
  const Value found = member_of(v, key, budget);
  return found.is_undefined() && key.is_string() && has_method(v, key.string()) ? Function{key.string(), true} : found;
}

Value apply_method(const std::string& name, const Call& c) {
  if (c.subject.is_dict()) return dict_method(name, c);
  if (!c.subject.is_string()) throw RenderError{described(c.subject) + " has no method '" + name + "'"};
  const std::string& text = c.subject.string();
  c.budget.make(text.size());
  if (name == "strip") return stripped(text, c.argument(0, "chars"), Ends::Both, c.budget);
  if (name == "lstrip") return stripped(text, c.argument(0, "chars"), Ends::Left, c.budget);
  if (name == "rstrip") return stripped(text, c.argument(0, "chars"), Ends::Right, c.budget);
  if (name == "split") return split(c);
  if (name == "startswith") return begins_or_ends(c, true);
  if (name == "endswith") return begins_or_ends(c, false);
  if (name == "replace") return replace(c);
  if (name == "upper") return upper_of(text);
  if (name == "lower") return lower_of(text);
  if (name == "capitalize") return capital(text);
  if (name == "title") return titled(text, true);
  throw RenderError{"a string has no method '" + name + "'"};
}

}  // namespace tenon::jinja
