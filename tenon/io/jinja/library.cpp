// Filters and tests.
#include "tenon/io/jinja/library.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "tenon/core/utf8.h"
#include "tenon/io/jinja/strings.h"

namespace tenon::jinja {
namespace {

using Filter = Value (*)(const Call&);
using Test = bool (*)(const Call&);

Value length(const Call& c) {
  const Value& v = c.subject;
  if (v.is_undefined()) return int64_t{0};
  if (v.is_generator()) throw RenderError{"length: a generator has no length; |list makes it a list", true};
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
  constexpr int64_t kMost = 16;
  std::optional<std::string> step;
  if (indent.is_int() || indent.is_bool())
    step = std::string(static_cast<size_t>(std::clamp<int64_t>(indent.integer(), 0, kMost + 1)), ' ');
  else if (indent.is_string())
    step = indent.string();
  else if (!indent.is_undefined() && !indent.is_none())
    throw RenderError{"tojson: expected an indent in blanks or a string, found " + described(indent)};
  if (step && step->size() > kMost) throw RenderError{"tojson: an indent of more than 16", true};
  return to_json(c.subject, std::move(step), truthy(sorted), c.budget);
}

// A value's member by a dotted path "a.b".
Value at_path(const Value& v, const Value& path, Budget& budget) {
  if (!path.is_string()) return item_of(v, path, budget);
  budget.make(split_bytes(path.string()));
  Value out = v;
  for (const Value& part : split_at(path.string(), ".", -1)) {
    int64_t index = 0;
    const std::string& text = part.string();
    budget.work(Budget::kStep);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), index);
    const bool is_index = !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
    out = item_of(out, is_index ? Value(index) : part, budget);
  }
  return out;
}

Value join(const Call& c) {
  const Value between = c.argument(0, "d"), attribute = c.argument(1, "attribute");
  const std::string separator = to_text(between, c.budget);
  std::string out;
  bool first = true;
  for (const Value& item : items_of(c.subject, c.budget)) {
    if (!first) out += separator;
    out += to_text(attribute.is_undefined() ? item : at_path(item, attribute, c.budget), c.budget);
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
  List out;  // made at once: a template cannot tell when
  for (const Value& item : items_of(c.subject, c.budget)) {
    if (!attribute.is_undefined()) {
      const Value found = at_path(item, attribute, c.budget);
      out.push_back(found.is_undefined() && !otherwise.is_undefined() ? otherwise : found);
    } else {
      const std::string& name = string_of(filter, "map");
      if (!is_filter(name) || name == "map") throw RenderError{"map: there is no filter '" + name + "'", true};
      out.push_back(apply_filter(name, inner_call(c, 1, item)));
    }
  }
  return Value::generator(std::move(out));
}

// select, reject (by a test of the item) and selectattr, rejectattr (of its member).
enum class Tested { Item, Member };
Value chosen(const Call& c, Tested what, bool keep) {
  const bool by_member = what == Tested::Member;
  const size_t skip = by_member ? 1 : 0;
  const Value member = by_member ? c.argument(0, "attr") : Value();
  List out;
  for (const Value& item : items_of(c.subject, c.budget)) {
    const Value tested = by_member ? at_path(item, member, c.budget) : item;
    bool holds = truthy(tested);
    if (c.arguments.size() > skip) {
      const std::string& name = string_of(c.arguments[skip], "select");
      if (!is_test(name)) throw RenderError{"select: there is no test '" + name + "'", true};
      holds = apply_test(name, inner_call(c, skip + 1, tested));
    }
    if (holds == keep) out.push_back(item);
  }
  return Value::generator(std::move(out));
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
  if (c.subject.is_generator()) {
    if (last) throw RenderError{"last: a generator cannot be read backwards; |list makes it a list", true};
    GeneratorState& g = c.subject.generator();
    return g.at < g.items.list().size() ? g.items.list()[g.at++] : Value();
  }
  const List items = items_of(c.subject, c.budget);
  if (items.empty()) return Undefined{};
  return last ? items.back() : items.front();
}

Value reversed(const Call& c) {
  List items = items_of(c.subject, c.budget);
  std::reverse(items.begin(), items.end());
  if (c.subject.is_generator()) return items;  // which Python makes a list first
  if (!c.subject.is_string()) return Value::generator(std::move(items));
  std::string out;
  for (const Value& item : items) out += item.string();
  return out;
}

Value to_integer(const Call& c) {
  if (c.subject.is_undefined()) throw RenderError{"int: " + described(c.subject)};
  const Value otherwise = c.argument(0, "default"), base = c.argument(1, "base");
  Value fallback = otherwise.is_undefined() ? Value(int64_t{0}) : otherwise;
  if (!base.is_undefined() && !base.is_int())
    throw RenderError{"int: expected an integer base, found " + described(base)};
  const auto whole = [&](double v) {
    if (std::abs(v) >= 9223372036854775807.0) throw RenderError{"int: an integer beyond 64 bits", true};
    return static_cast<int64_t>(v);
  };
  if (c.subject.is_float()) return std::isnan(c.subject.number()) ? fallback : Value(whole(c.subject.number()));
  if (c.subject.is_number()) return c.subject.integer();
  if (!c.subject.is_string()) return fallback;
  c.budget.make(2 * c.subject.string().size());
  if (const auto exact = integer_of(c.subject.string(), base.is_undefined() ? 10 : base.integer())) return *exact;
  const auto real = float_of(c.subject.string());  // so that "42.23" gives 42
  return real && std::isfinite(*real) ? Value(whole(*real)) : fallback;
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
  return stripped(to_text(c.subject, c.budget), c.argument(0, "chars"), Ends::Both, c.budget);
};
constexpr auto upper = [](const Call& c) -> Value { return upper_of(to_text(c.subject, c.budget)); };
constexpr auto lower = [](const Call& c) -> Value { return lower_of(to_text(c.subject, c.budget)); };
constexpr auto as_is = [](const Call& c) -> Value { return c.subject; };

const std::array<NamedFilter, 26> kFilters = {{
    {"capitalize", [](const Call& c) -> Value { return capital(to_text(c.subject, c.budget)); }},
    {"count", length},
    {"d", otherwise},
    {"default", otherwise},
    {"dictsort", dictsort},
    {"first", [](const Call& c) -> Value { return end_of(c, false); }},
    {"int", to_integer},
    {"items", [](const Call& c) -> Value { return Value::generator(pairs_of(c.subject, "items", c.budget)); }},
    {"join", join},
    {"last", [](const Call& c) -> Value { return end_of(c, true); }},
    {"length", length},
    {"list", [](const Call& c) -> Value { return items_of(c.subject, c.budget); }},
    {"lower", lower},
    {"map", map},
    {"reject", [](const Call& c) -> Value { return chosen(c, Tested::Item, false); }},
    {"rejectattr", [](const Call& c) -> Value { return chosen(c, Tested::Member, false); }},
    {"replace", replace},
    {"reverse", reversed},
    {"safe", as_is},
    {"select", [](const Call& c) -> Value { return chosen(c, Tested::Item, true); }},
    {"selectattr", [](const Call& c) -> Value { return chosen(c, Tested::Member, true); }},
    {"string", [](const Call& c) -> Value { return to_text(c.subject, c.budget); }},
    {"title", [](const Call& c) -> Value { return titled(to_text(c.subject, c.budget), false); }},
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
       return c.subject.is_string() || c.subject.is_list() || c.subject.is_dict() || c.subject.is_undefined() ||
              c.subject.is_generator();
     }},
    {"mapping", [](const Call& c) { return c.subject.is_dict(); }},
    {"ne", [](const Call& c) { return !equals(c); }},
    {"none", [](const Call& c) { return c.subject.is_none(); }},
    {"number", [](const Call& c) { return c.subject.is_number(); }},
    {"odd",
     [](const Call& c) { return equal(arithmetic("%", c.subject, int64_t{2}, c.budget), int64_t{1}, c.budget); }},
    {"sequence",
     [](const Call& c) {
       return c.subject.is_string() || c.subject.is_sequence() || c.subject.is_dict() || c.subject.is_undefined();
     }},
    {"string", [](const Call& c) { return c.subject.is_string(); }},
    {"true", [](const Call& c) { return c.subject.is_bool() && c.subject.boolean(); }},
    {"undefined", [](const Call& c) { return c.subject.is_undefined(); }},
}};

template <class Table>
auto find_named(const Table& table, std::string_view name) {
  return std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.name == name; });
}

}  // namespace

const std::string& string_of(const Value& v, const char* what) {
  if (!v.is_string()) throw RenderError{std::string(what) + ": expected a string, found " + described(v)};
  return v.string();
}

Value Call::argument(size_t position, std::string_view name) const {
  if (position < arguments.size()) return arguments[position];
  for (const auto& [key, value] : named)
    if (key == name) return value;
  return Undefined{};
}

bool is_filter(std::string_view name) { return find_named(kFilters, name) != kFilters.end(); }
bool is_test(std::string_view name) { return find_named(kTests, name) != kTests.end(); }

Value apply_filter(const std::string& name, const Call& call) { return find_named(kFilters, name)->call(call); }
bool apply_test(const std::string& name, const Call& call) { return find_named(kTests, name)->call(call); }

}  // namespace tenon::jinja
