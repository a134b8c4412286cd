// Filters, tests and methods.
#include "tenon/io/jinja/library.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "tenon/core/utf8.h"
#include "tenon/io/jinja/lexer.h"

namespace tenon::jinja {
namespace {

using Filter = Value (*)(const Call&);
using Test = bool (*)(const Call&);

// A string argument, or the subject, as text; other values are printed.
std::string text_of(const Value& v, Budget& budget) { return to_text(v, budget); }

const std::string& string_of(const Value& v, const char* what) {
  if (!v.is_string()) throw RenderError{std::string(what) + ": expected a string, found " + described(v)};
  return v.string();
}

// Maps each code point to one code point, except ß; other letters with two upper-case letters (ﬁ, ŉ, ...) are
// unchanged.
void append_upper(std::string& out, uint32_t c, const char* sharp_s = "SS") {
  if (c == 0xdf)
    out += sharp_s;
  else
    append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}
void append_lower(std::string& out, uint32_t c) {
  append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

std::string upper_of(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) append_upper(out, next_code_point(text, i));
  return out;
}
std::string lower_of(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) append_lower(out, next_code_point(text, i));
  return out;
}

// First character in upper case, all others in lower case.
std::string capital(const std::string& text) {
  std::string out;
  size_t first = 0;
  if (!text.empty()) append_upper(out, next_code_point(text, first), "Ss");
  return out + lower_of(text.substr(first));
}

bool is_cased_letter(uint32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
}

// Each word's first letter in upper case. In Python's method a word starts after any uncased character, in Jinja's
// filter after blanks, hyphens and opening brackets.
std::string titled(const std::string& text, bool python) {
  std::string out;
  bool begins = true;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    if (begins)
      append_upper(out, c, python ? "Ss" : "SS");
    else
      append_lower(out, c);
    constexpr std::string_view kOpening = "-({[<";
    begins = python ? !is_cased_letter(c)
                    : is_python_space(c) || (c < 0x80 && kOpening.find(static_cast<char>(c)) != kOpening.npos);
  }
  return out;
}

// str.strip with the given characters, or of white space if there are none.
std::string stripped(const std::string& text, const Value& characters, bool left, bool right, Budget& budget) {
  budget.make(text.size());
  std::string_view out = text;
  if (characters.is_undefined() || characters.is_none()) {
    if (left) out = without_leading_space(out);
    if (right) out = without_trailing_space(out);
    return std::string(out);
  }
  std::vector<uint32_t> set;
  const std::string& listed = string_of(characters, "strip");
  budget.make(listed.size() * sizeof(uint32_t));
  budget.work(listed.size() * sizeof(uint32_t) * static_cast<uint64_t>(std::bit_width(listed.size())));  // for sorting
  for (size_t i = 0; i < listed.size();) set.push_back(next_code_point(listed, i));
  std::sort(set.begin(), set.end());
  const auto is_in = [&](size_t at) {
    budget.work(static_cast<uint64_t>(std::bit_width(set.size())));
    return std::binary_search(set.begin(), set.end(), next_code_point(out, at));
  };
  while (left && !out.empty() && is_in(0)) {
    size_t next = 0;
    next_code_point(out, next);
    out.remove_prefix(next);
  }
  while (right && !out.empty()) {
    size_t last = out.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(out[last]) & 0xc0) == 0x80) --last;
    if (!is_in(last)) break;
    out = out.substr(0, last);
  }
  return std::string(out);
}

// Upper bound of the memory for a text's parts.
uint64_t split_bytes(const std::string& text) { return text.size() * (2 + sizeof(Value) / 2); }

List split_at(const std::string& text, const std::string& separator, int64_t most) {
  if (separator.empty()) throw RenderError{"split: an empty separator"};
  List out;
  size_t at = 0;
  for (size_t found = find_part(text, separator); found != std::string::npos && most != 0; --most) {
    out.emplace_back(text.substr(at, found - at));
    at = found + separator.size();
    found = find_part(text, separator, at);
  }
  out.emplace_back(text.substr(at));
  return out;
}

List split_at_space(std::string_view text, int64_t most) {
  List out;
  for (text = without_leading_space(text); !text.empty(); --most) {
    size_t end = 0;
    while (end < text.size() && most != 0) {
      size_t next = end;
      if (is_python_space(next_code_point(text, next))) break;
      end = next;
    }
    if (most == 0) end = text.size();
    out.emplace_back(text.substr(0, end));
    text = without_leading_space(text.substr(end));
  }
  return out;
}

Value split(const Call& c) {
  const std::string& text = c.subject.string();
  const Value separator = c.argument(0, "sep"), most = c.argument(1, "maxsplit");
  c.budget.make(split_bytes(text));
  const int64_t count = most.is_int() ? most.integer() : -1;
  if (separator.is_undefined() || separator.is_none()) return split_at_space(text, count);
  return split_at(text, string_of(separator, "split"), count);
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t most,
                     Budget& budget) {
  std::string out;
  size_t at = 0;
  while (most != 0) {
    size_t found = find_part(text, from, at);
    if (from.empty() && found != std::string::npos && at == text.size()) {
      out += to;  // after the last character too
      break;
    }
    if (found == std::string::npos) break;
    size_t next = found + from.size();
    if (from.empty()) next_code_point(text, next);
    budget.make(to.size() + (next - at));
    out.append(text, at, found - at).append(to);
    if (from.empty()) out.append(text, found, next - found);
    at = next;
    --most;
  }
  budget.make(text.size());
  return at <= text.size() ? out.append(text, at) : out;
}

Value replace(const Call& c) {
  const Value from = c.argument(0, "old"), to = c.argument(1, "new"), most = c.argument(2, "count");
  return replaced(text_of(c.subject, c.budget), string_of(from, "replace"), string_of(to, "replace"),
                  most.is_int() ? most.integer() : -1, c.budget);
}

// startswith, endswith: one string, or a list of them.
bool begins_or_ends(const Call& c, bool begins) {
  const Value what = c.argument(0, "prefix");
  const std::string& text = c.subject.string();
  const auto fits = [&](const Value& part) {
    const std::string& s = string_of(part, begins ? "startswith" : "endswith");
    c.budget.work(Budget::kStep + s.size());
    return begins ? text.starts_with(s) : text.ends_with(s);
  };
  if (!what.is_list()) return fits(what);
  return std::any_of(what.list().begin(), what.list().end(), fits);
}

Value length(const Call& c) {
  const Value& v = c.subject;
  if (v.is_undefined()) return int64_t{0};
  if (v.is_list()) return static_cast<int64_t>(v.list().size());
  if (v.is_dict()) return static_cast<int64_t>(v.dict().items().size());
  const std::string& text = string_of(v, "length");
  c.budget.work(text.size());
  return static_cast<int64_t>(std::count_if(text.begin(), text.end(), [](char b) { return (b & 0xc0) != 0x80; }));
}

Value tojson(const Call& c) {
  const Value indent = c.argument(1, "indent"), sorted = c.argument(3, "sort_keys"),
              ascii = c.argument(0, "ensure_ascii");
  if (truthy(ascii) || truthy(c.argument(2, "separators")))
    throw RenderError{"tojson: ensure_ascii and separators are not supported", true};
  int64_t width = -1;
  if (indent.is_int()) width = indent.integer();
  if (width > 16) throw RenderError{"tojson: an indent of more than 16", true};
  return to_json(c.subject, static_cast<int>(std::max<int64_t>(width, -1)), truthy(sorted), c.budget);
}

// A value's member by a dotted path "a.b".
Value attribute_of(const Value& v, const Value& path, Budget& budget) {
  if (!path.is_string()) return member_of(v, path, budget);
  budget.make(split_bytes(path.string()));
  Value out = v;
  for (const Value& part : split_at(path.string(), ".", -1)) {
    int64_t index = 0;
    const std::string& text = part.string();
    budget.work(Budget::kStep);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), index);
    const bool is_index = !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
    out = member_of(out, is_index ? Value(index) : part, budget);
  }
  return out;
}

Value join(const Call& c) {
  const Value between = c.argument(0, "d"), attribute = c.argument(1, "attribute");
  const std::string separator = text_of(between, c.budget);
  std::string out;
  bool first = true;
  for (const Value& item : items_of(c.subject, c.budget)) {
    if (!first) out += separator;
    out += text_of(attribute.is_undefined() ? item : attribute_of(item, attribute, c.budget), c.budget);
    c.budget.make(separator.size());
    first = false;
  }
  return out;
}

// The call of a filter or test that another filter names: the arguments after the name are passed to it.
Call inner_call(const Call& c, size_t skip, Value subject) {
  c.budget.make(Budget::kStep + c.arguments.size() * sizeof(Value));
  Call out{std::move(subject), {}, {}, c.budget};
  for (size_t i = skip; i < c.arguments.size(); ++i) out.arguments.push_back(c.arguments[i]);
  return out;
}

Value map(const Call& c) {
  const Value attribute = c.argument(c.arguments.size(), "attribute"),
              otherwise = c.argument(c.arguments.size(), "default"), filter = c.argument(0, "filter");
  List out;
  for (const Value& item : items_of(c.subject, c.budget)) {
    if (!attribute.is_undefined()) {
      const Value found = attribute_of(item, attribute, c.budget);
      out.push_back(found.is_undefined() && !otherwise.is_undefined() ? otherwise : found);
    } else {
      const std::string& name = string_of(filter, "map");
      if (!is_filter(name) || name == "map") throw RenderError{"map: there is no filter '" + name + "'", true};
      out.push_back(apply_filter(name, inner_call(c, 1, item)));
    }
  }
  return out;
}

// select, reject (by a test of the item) and selectattr, rejectattr (of its member).
Value chosen(const Call& c, bool by_member, bool keep) {
  const size_t skip = by_member ? 1 : 0;
  const Value member = by_member ? c.argument(0, "attr") : Value();
  List out;
  for (const Value& item : items_of(c.subject, c.budget)) {
    const Value tested = by_member ? attribute_of(item, member, c.budget) : item;
    bool holds = truthy(tested);
    if (c.arguments.size() > skip) {
      const std::string& name = string_of(c.arguments[skip], "select");
      if (!is_test(name)) throw RenderError{"select: there is no test '" + name + "'", true};
      holds = apply_test(name, inner_call(c, skip + 1, tested));
    }
    if (holds == keep) out.push_back(item);
  }
  return out;
}

List pairs_of(const Value& v, const char* what, Budget& budget) {
  List out;
  if (v.is_undefined()) return out;
  if (!v.is_dict()) throw RenderError{std::string(what) + ": expected a mapping, found " + described(v)};
  budget.make(v.dict().items().size() * 4 * sizeof(Value));
  for (const auto& [key, value] : v.dict().items()) out.push_back(Value::pair(key, value));
  return out;
}

// Keys in alphabetical order, ignoring case.
Value dictsort(const Call& c) {
  if (!c.arguments.empty() || !c.named.empty()) throw RenderError{"dictsort: arguments are not supported", true};
  List out = pairs_of(c.subject, "dictsort", c.budget);
  std::vector<std::pair<std::string, Value>> keyed;
  for (const Value& pair : out) {
    c.budget.make(pair.list()[0].string().size());
    keyed.emplace_back(lower_of(pair.list()[0].string()), pair);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < out.size(); ++i) out[i] = keyed[i].second;
  return out;
}

Value end_of(const Call& c, bool last) {
  const List items = items_of(c.subject, c.budget);
  if (items.empty()) return Undefined{};
  return last ? items.back() : items.front();
}

Value reversed(const Call& c) {
  List items = items_of(c.subject, c.budget);
  std::reverse(items.begin(), items.end());
  if (!c.subject.is_string()) return items;
  std::string out;
  for (const Value& item : items) out += item.string();
  return out;
}

Value to_integer(const Call& c) {
  const Value otherwise = c.argument(0, "default");
  Value fallback = otherwise.is_undefined() ? Value(int64_t{0}) : otherwise;
  if (c.subject.is_float()) {
    const double v = std::trunc(c.subject.number());
    return std::abs(v) < 9e18 ? Value(static_cast<int64_t>(v)) : fallback;
  }
  if (c.subject.is_number()) return c.subject.integer();
  if (!c.subject.is_string()) return fallback;
  c.budget.work(c.subject.string().size());
  const std::string_view text = without_leading_space(without_trailing_space(c.subject.string()));
  int64_t out = 0;
  double real = 0;
  const char* end = text.data() + text.size();
  if (const auto parsed = std::from_chars(text.data(), end, out); parsed.ec == std::errc() && parsed.ptr == end)
    return out;
  const auto parsed = std::from_chars(text.data(), end, real);
  const bool fits = parsed.ec == std::errc() && parsed.ptr == end && std::abs(real) < 9e18;
  return fits ? Value(static_cast<int64_t>(real)) : fallback;
}

Value otherwise(const Call& c) {
  const bool take = c.subject.is_undefined() || (truthy(c.argument(1, "boolean")) && !truthy(c.subject));
  if (!take) return c.subject;
  const Value given = c.argument(0, "default_value");
  return given.is_undefined() ? Value("") : given;
}

struct NamedFilter {
  std::string_view name;
  Filter call;
};
constexpr auto trim = [](const Call& c) -> Value {
  return stripped(text_of(c.subject, c.budget), c.argument(0, "chars"), true, true, c.budget);
};
constexpr auto upper = [](const Call& c) -> Value { return upper_of(text_of(c.subject, c.budget)); };
constexpr auto lower = [](const Call& c) -> Value { return lower_of(text_of(c.subject, c.budget)); };
constexpr auto as_is = [](const Call& c) -> Value { return c.subject; };

const std::array<NamedFilter, 26> kFilters = {{
    {"capitalize", [](const Call& c) -> Value { return capital(text_of(c.subject, c.budget)); }},
    {"count", length},
    {"d", otherwise},
    {"default", otherwise},
    {"dictsort", dictsort},
    {"first", [](const Call& c) -> Value { return end_of(c, false); }},
    {"int", to_integer},
    {"items", [](const Call& c) -> Value { return pairs_of(c.subject, "items", c.budget); }},
    {"join", join},
    {"last", [](const Call& c) -> Value { return end_of(c, true); }},
    {"length", length},
    {"list", [](const Call& c) -> Value { return items_of(c.subject, c.budget); }},
    {"lower", lower},
    {"map", map},
    {"reject", [](const Call& c) -> Value { return chosen(c, false, false); }},
    {"rejectattr", [](const Call& c) -> Value { return chosen(c, true, false); }},
    {"replace", replace},
    {"reverse", reversed},
    {"safe", as_is},
    {"select", [](const Call& c) -> Value { return chosen(c, false, true); }},
    {"selectattr", [](const Call& c) -> Value { return chosen(c, true, true); }},
    {"string", [](const Call& c) -> Value { return text_of(c.subject, c.budget); }},
    {"title", [](const Call& c) -> Value { return titled(text_of(c.subject, c.budget), false); }},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", upper},
}};

struct NamedTest {
  std::string_view name;
  Test call;
};
constexpr auto equals = [](const Call& c) { return equal(c.subject, c.argument(0, "other"), c.budget); };
const std::array<NamedTest, 20> kTests = {{
    {"boolean", [](const Call& c) { return c.subject.is_bool(); }},
    {"defined", [](const Call& c) { return !c.subject.is_undefined(); }},
    {"divisibleby", [](const Call& c) { return !truthy(arithmetic("%", c.subject, c.argument(0, "num"), c.budget)); }},
    {"eq", equals},
    {"equalto", equals},
    {"even", [](const Call& c) { return !truthy(arithmetic("%", c.subject, int64_t{2}, c.budget)); }},
    {"false", [](const Call& c) { return c.subject.is_bool() && !c.subject.boolean(); }},
    {"float", [](const Call& c) { return c.subject.is_float(); }},
    {"in", [](const Call& c) { return compare("in", c.subject, c.argument(0, "seq"), c.budget); }},
    {"integer", [](const Call& c) { return c.subject.is_int(); }},
    {"iterable",
     [](const Call& c) {
       return c.subject.is_string() || c.subject.is_list() || c.subject.is_dict() || c.subject.is_undefined();
     }},
    {"mapping", [](const Call& c) { return c.subject.is_dict(); }},
    {"ne", [](const Call& c) { return !equals(c); }},
    {"none", [](const Call& c) { return c.subject.is_none(); }},
    {"number", [](const Call& c) { return c.subject.is_number(); }},
    {"odd", [](const Call& c) { return truthy(arithmetic("%", c.subject, int64_t{2}, c.budget)); }},
    {"sequence",
     [](const Call& c) {
       return c.subject.is_string() || c.subject.is_list() || c.subject.is_dict() || c.subject.is_undefined();
     }},
    {"string", [](const Call& c) { return c.subject.is_string(); }},
    {"true", [](const Call& c) { return c.subject.is_bool() && c.subject.boolean(); }},
    {"undefined", [](const Call& c) { return c.subject.is_undefined(); }},
}};

constexpr std::array<std::string_view, 15> kMethods = {"capitalize", "endswith", "get",     "items",  "keys",
                                                       "lower",      "lstrip",   "replace", "rstrip", "split",
                                                       "startswith", "strip",    "title",   "upper",  "values"};

template <class Table>
auto find_named(const Table& table, std::string_view name) {
  return std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.name == name; });
}

Value dict_method(const std::string& name, const Call& c) {
  const Dict& dict = c.subject.dict();
  if (name == "get") {
    const Value* found = c.budget.find(dict, string_of(c.argument(0, "key"), "get"));
    if (found) return *found;
    const Value given = c.argument(1, "default");
    return given.is_undefined() ? Value(None{}) : given;
  }
  if (name == "items") return pairs_of(c.subject, "items", c.budget);
  if (name == "keys") return items_of(c.subject, c.budget);
  if (name != "values") throw RenderError{"a mapping has no method '" + name + "'"};
  List out;
  c.budget.make(dict.items().size() * sizeof(Value));
  for (const auto& [key, value] : dict.items()) out.push_back(value);
  return out;
}

}  // namespace

Value Call::argument(size_t position, std::string_view name) const {
  if (position < arguments.size()) return arguments[position];
  for (const auto& [key, value] : named)
    if (key == name) return value;
  return Undefined{};
}

bool is_filter(std::string_view name) { return find_named(kFilters, name) != kFilters.end(); }
bool is_test(std::string_view name) { return find_named(kTests, name) != kTests.end(); }
bool is_method(std::string_view name) { return std::find(kMethods.begin(), kMethods.end(), name) != kMethods.end(); }

Value apply_filter(const std::string& name, const Call& call) { return find_named(kFilters, name)->call(call); }
bool apply_test(const std::string& name, const Call& call) { return find_named(kTests, name)->call(call); }

Value apply_method(const std::string& name, const Call& c) {
  if (c.subject.is_dict()) return dict_method(name, c);
  if (!c.subject.is_string()) throw RenderError{described(c.subject) + " has no method '" + name + "'"};
  const std::string& text = c.subject.string();
  c.budget.make(text.size());
  if (name == "strip") return stripped(text, c.argument(0, "chars"), true, true, c.budget);
  if (name == "lstrip") return stripped(text, c.argument(0, "chars"), true, false, c.budget);
  if (name == "rstrip") return stripped(text, c.argument(0, "chars"), false, true, c.budget);
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
