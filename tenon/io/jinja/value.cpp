#include "tenon/io/jinja/value.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "tenon/core/utf8.h"

namespace tenon::jinja {
namespace {

// Python's repr of a float: the shortest digits that parse to the same number.
std::string float_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), v, std::chars_format::scientific).ptr;
  std::string text(buffer.data(), end);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;  // both write at least two exponent digits
  const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), v, std::chars_format::fixed).ptr;
  std::string out(buffer.data(), fixed);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

void append_escape(std::string& out, const char* format, uint32_t c) {
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), format, c);
  out += text.data();
}

// Whether Python's repr shows the character unescaped.
bool is_printable(uint32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string quoted(const std::string& text) {
  const bool single = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = single ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    if (c == '\\' || c == static_cast<uint32_t>(quote))
      out.append(1, '\\').append(1, static_cast<char>(c));
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (is_printable(c))
      append_utf8(out, c);
    else
      append_escape(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
  }
  return out.append(1, quote);
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    constexpr std::string_view kFrom = "\"\\\b\f\n\r\t", kTo = "\"\\bfnrt";
    const size_t known = kFrom.find(c);
    if (known != std::string_view::npos)
      out.append(1, '\\').append(1, kTo[known]);
    else if (static_cast<unsigned char>(c) < 0x20)
      append_escape(out, "\\u%04x", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out.append(1, '"');
}

// Python's repr, or JSON: on one line unless there is an indent, with keys in their order or sorted.
struct Style {
  bool json = false;
  std::optional<std::string> indent = {};
  bool sort_keys = false;
};

// Writes nested values.
class Writer {
 public:
  Writer(Budget& budget, Style style)
      : budget_(budget), json_(style.json), indent_(std::move(style.indent)), sort_keys_(style.sort_keys) {}

  std::string text(const Value& v) {
    write(v);
    return std::move(out_);
  }

 private:
  void add(std::string_view text) {
    budget_.make(text.size() + 1);
    out_ += text;
  }
  void new_line() {
    if (!indent_) return;
    add("\n");
    for (int i = 0; i < depth_; ++i) add(*indent_);
  }

  void write(const Value& v) {
    budget_.work(Budget::kStep);
    if (v.is_none())
      add(json_ ? "null" : "None");
    else if (v.is_bool())
      add(json_ ? (v.boolean() ? "true" : "false") : (v.boolean() ? "True" : "False"));
    else if (v.is_int())
      add(std::to_string(v.integer()));
    else if (v.is_float())
      add(json_ && std::isnan(v.number())   ? "NaN"
          : json_ && std::isinf(v.number()) ? (v.number() < 0 ? "-Infinity" : "Infinity")
                                            : float_text(v.number()));
    else if (v.is_string())
      add(json_ ? json_string(v.string()) : quoted(v.string()));
    else if (v.is_list())
      write_list(v);
    else if (v.is_dict())
      write_dict(v.dict());
    else if (!json_ && v.is_undefined())
      add("Undefined");
    else
      throw RenderError{described(v) + " cannot be written as text"};
  }

  // `each` writes item i.
  template <class F>
  void write_items(size_t count, std::string_view open, std::string_view close, const F& each) {
    add(open);
    ++depth_;
    for (size_t i = 0; i < count; ++i) {
      if (i) add(indent_ ? "," : ", ");
      new_line();
      each(i);
    }
    --depth_;
    if (count) new_line();
    add(close);
  }

  void write_list(const Value& v) {
    const bool tuple = v.is_list(ListKind::Tuple), named = !tuple && !v.is_list(ListKind::Plain);
    if (named && (json_ || v.is_list(ListKind::Range)))
      throw RenderError{described(v) + " cannot be written as text; |list makes it a list", true};
    if (named)
      add(v.is_list(ListKind::Keys) ? "dict_keys(" : v.is_list(ListKind::Values) ? "dict_values(" : "dict_items(");
    const bool round = tuple && !json_;
    write_items(v.list().size(), round ? "(" : "[", round ? (v.list().size() == 1 ? ",)" : ")") : "]",
                [&](size_t i) { write(v.list()[i]); });
    if (named) add(")");
  }
  void write_dict(const Dict& dict) {
    std::vector<const std::pair<std::string, Value>*> items;
    for (const auto& item : dict.items()) items.push_back(&item);
    if (sort_keys_) std::sort(items.begin(), items.end(), [](auto a, auto b) { return a->first < b->first; });
    write_items(items.size(), "{", "}", [&](size_t i) {
      add(json_ ? json_string(items[i]->first) : quoted(items[i]->first));
      add(": ");
      write(items[i]->second);
    });
  }

  Budget& budget_;
  bool json_;
  std::optional<std::string> indent_;
  bool sort_keys_;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

std::partial_ordering order_of_numbers(const Value& a, const Value& b) {
  if (a.is_float() && b.is_float()) return a.number() <=> b.number();
  if (!a.is_float() && !b.is_float()) return a.integer() <=> b.integer();
  if (a.is_float()) {
    const std::partial_ordering other = order_of_numbers(b, a);
    if (std::is_lt(other)) return std::partial_ordering::greater;
    return std::is_gt(other) ? std::partial_ordering::less : other;
  }
  constexpr double kBeyond = 9223372036854775808.0;
  const double real = b.number();
  if (!(real >= -kBeyond && real < kBeyond)) return 0.0 <=> real;  // larger than any integer, or not a number
  const double whole = std::trunc(real);
  const auto exact = static_cast<int64_t>(whole);
  return a.integer() != exact ? a.integer() <=> exact : std::partial_ordering(whole <=> real);
}

namespace {

bool equal_lists(const Value& a, const Value& b, Budget& budget) {
  if (a.list().size() != b.list().size() || a.kind() != b.kind()) return false;
  if (a.is_list(ListKind::Values)) return a.is_same_list(b);
  const bool any_order = !a.is_sequence();  // keys and items are compared as sets
  for (size_t i = 0; i < a.list().size(); ++i) {
    const auto same = [&](const Value& other) { return equal(a.list()[i], other, budget); };
    if (any_order ? std::none_of(b.list().begin(), b.list().end(), same) : !same(b.list()[i])) return false;
  }
  return true;
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.work(Budget::kStep);
  if (a.is_number() && b.is_number()) return std::is_eq(order_of_numbers(a, b));
  if (a.is_string() && b.is_string()) {
    if (a.string().size() != b.string().size()) return false;
    budget.work(a.string().size());
    return a.string() == b.string();
  }
  if (a.is_list() && b.is_list()) return equal_lists(a, b, budget);
  if (a.is_generator() && b.is_generator()) return &a.generator() == &b.generator();
  if (a.is_dict() && b.is_dict()) {
    if (a.dict().items().size() != b.dict().items().size()) return false;
    for (const auto& [key, value] : a.dict().items()) {
      const Value* other = budget.find(b.dict(), key);
      if (!other || !equal(value, *other, budget)) return false;
    }
    return true;
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Value::Value(List list, ListKind kind) {
  int deepest = 0;
  for (const Value& item : list) deepest = std::max(deepest, item.depth());
  if (deepest >= kMaxValueDepth) throw RenderError{"values nested too deep", true};
  data_ = std::make_shared<const Nested<List>>(Nested<List>{std::move(list), deepest + 1, kind});
}

Value::Value(Dict dict) {
  int deepest = 0;
  for (const auto& [key, item] : dict.items()) deepest = std::max(deepest, item.depth());
  if (deepest >= kMaxValueDepth) throw RenderError{"values nested too deep", true};
  data_ = std::make_shared<const Nested<Dict>>(Nested<Dict>{std::move(dict), deepest + 1});
}

Value Value::undefined(const Value& name) {
  return Undefined{std::get<std::shared_ptr<const std::string>>(name.data_)};
}

Value Value::generator(List items) {
  return Generator(std::make_shared<GeneratorState>(GeneratorState{Value(std::move(items))}));
}

int Value::depth() const {
  if (is_generator()) return generator().items.depth();
  return is_list() ? std::get<Shared<List>>(data_)->depth : is_dict() ? std::get<Shared<Dict>>(data_)->depth : 0;
}

const Value* Dict::find(const std::string& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &items_[found->second].second;
}

void Dict::set(const std::string& key, Value value) {
  const auto [at, fresh] = index_.try_emplace(key, items_.size());
  if (fresh)
    items_.emplace_back(key, std::move(value));
  else
    items_[at->second].second = std::move(value);
}

void Dict::clear() {
  items_.clear();
  index_.clear();
}

void Budget::spend(uint64_t& spent, uint64_t bytes, uint64_t most, const char* what) {
  if (bytes > most - spent) throw RenderError{std::string("takes more ") + what + " than a chat template may", true};
  spent += bytes;
}

std::string described(const Value& v) {
  if (v.is_undefined()) return "undefined" + (v.name().empty() ? std::string() : " '" + std::string(v.name()) + "'");
  if (v.is_none()) return "none";
  if (v.is_bool()) return "a boolean";
  if (v.is_number()) return "a number";
  if (v.is_string()) return "a string";
  if (v.is_list(ListKind::Range)) return "a range";
  if (v.is_list()) return v.is_sequence() ? "a list" : "a view of a mapping";
  if (v.is_generator()) return "a generator";
  if (v.is_dict()) return "a mapping";
  return v.is_namespace() ? "a namespace" : v.is_method() ? "a method" : "a function";
}

Value from_json(const nlohmann::ordered_json& json, int depth) {
  if (depth >= kMaxValueDepth)
    throw RenderError{"data nested deeper than " + std::to_string(kMaxValueDepth) + " levels"};
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    throw RenderError{"the number " + json.dump() + " is too large"};
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    if (const auto bad = first_invalid_utf8(text))
      throw RenderError{"a string of the data is invalid UTF-8 at byte " + std::to_string(*bad)};
    return text;
  }
  if (json.is_array()) {
    List out;
    out.reserve(json.size());
    for (const auto& item : json) out.push_back(from_json(item, depth + 1));
    return out;
  }
  Dict out;
  for (const auto& [key, item] : json.items()) {
    if (first_invalid_utf8(key)) throw RenderError{"a key of the data is invalid UTF-8"};
    out.set(key, from_json(item, depth + 1));
  }
  return out;
}

bool truthy(const Value& v) {
  if (v.is_undefined() || v.is_none()) return false;
  if (v.is_number()) return v.number() != 0;
  if (v.is_string()) return !v.string().empty();
  if (v.is_list()) return !v.list().empty();
  if (v.is_dict()) return !v.dict().items().empty();
  return true;
}

std::string to_text(const Value& v, Budget& budget) {
  if (v.is_undefined()) return "";
  if (v.is_string()) {
    budget.make(v.string().size());
    return v.string();
  }
  return Writer(budget, {}).text(v);
}

std::string to_json(const Value& v, std::optional<std::string> indent, bool sort_keys, Budget& budget) {
  return Writer(budget, {.json = true, .indent = std::move(indent), .sort_keys = sort_keys}).text(v);
}

List items_of(const Value& v, Budget& budget) {
  List out;
  if (v.is_undefined()) return out;
  if (v.is_list()) {
    budget.make(v.list().size() * sizeof(Value));
    return v.list();
  }
  if (v.is_generator()) {
    GeneratorState& g = v.generator();
    budget.make(g.items.list().size() * sizeof(Value));
    out.assign(g.items.list().begin() + static_cast<std::ptrdiff_t>(g.at), g.items.list().end());
    g.at = g.items.list().size();
    return out;
  }
  if (v.is_dict()) {
    budget.make(v.dict().items().size() * 2 * sizeof(Value));
    for (const auto& [key, value] : v.dict().items()) out.emplace_back(key);
    return out;
  }
  if (!v.is_string()) throw RenderError{described(v) + " has no items"};
  budget.make(v.string().size() * 2 * sizeof(Value));
  for (size_t i = 0; i < v.string().size();) {
    const size_t begin = i;
    next_code_point(v.string(), i);
    out.emplace_back(v.string().substr(begin, i - begin));
  }
  return out;
}

}  // namespace tenon::jinja
