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

// Writes nested values, as Python's repr or as JSON.
class Writer {
 public:
  Writer(Budget& budget, bool json, int indent, bool sort_keys)
      : budget_(budget), json_(json), indent_(indent), sort_keys_(sort_keys) {}

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
    if (indent_ < 0) return;
    add("\n");
    add(std::string(static_cast<size_t>(indent_) * static_cast<size_t>(depth_), ' '));
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
  void write_items(size_t count, char open, char close, const F& each) {
    add(std::string_view(&open, 1));
    ++depth_;
    for (size_t i = 0; i < count; ++i) {
      if (i) add(indent_ < 0 ? ", " : ",");
      new_line();
      each(i);
    }
    --depth_;
    if (count) new_line();
    add(std::string_view(&close, 1));
  }

  void write_list(const Value& v) {
    const bool tuple = v.is_pair() && !json_;
    write_items(v.list().size(), tuple ? '(' : '[', tuple ? ')' : ']', [&](size_t i) { write(v.list()[i]); });
  }
  void write_dict(const Dict& dict) {
    std::vector<const std::pair<std::string, Value>*> items;
    for (const auto& item : dict.items()) items.push_back(&item);
    if (sort_keys_) std::sort(items.begin(), items.end(), [](auto a, auto b) { return a->first < b->first; });
    write_items(items.size(), '{', '}', [&](size_t i) {
      add(json_ ? json_string(items[i]->first) : quoted(items[i]->first));
      add(": ");
      write(items[i]->second);
    });
  }

  Budget& budget_;
  bool json_;
  int indent_;
  bool sort_keys_;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.work(Budget::kStep);
  if (a.is_number() && b.is_number())
    return a.is_float() || b.is_float() ? a.number() == b.number() : a.integer() == b.integer();
  if (a.is_string() && b.is_string()) {
    if (a.string().size() != b.string().size()) return false;
    budget.work(a.string().size());
    return a.string() == b.string();
  }
  if (a.is_list() && b.is_list()) {
    if (a.list().size() != b.list().size() || a.is_pair() != b.is_pair()) return false;
    for (size_t i = 0; i < a.list().size(); ++i)
      if (!equal(a.list()[i], b.list()[i], budget)) return false;
    return true;
  }
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

Value::Value(List list) {
  int deepest = 0;
  for (const Value& item : list) deepest = std::max(deepest, item.depth());
  if (deepest >= kMaxValueDepth) throw RenderError{"values nested too deep", true};
  data_ = std::make_shared<const Nested<List>>(Nested<List>{std::move(list), deepest + 1});
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

Value Value::pair(Value key, Value value) {
  const Value both = List{std::move(key), std::move(value)};
  Value out;
  out.data_ = std::make_shared<const Nested<List>>(Nested<List>{both.list(), both.depth(), true});
  return out;
}

int Value::depth() const {
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
  if (v.is_list()) return "a list";
  if (v.is_dict()) return "a mapping";
  return v.is_namespace() ? "a namespace" : "a function";
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
  return Writer(budget, false, -1, false).text(v);
}

std::string to_json(const Value& v, int indent, bool sort_keys, Budget& budget) {
  return Writer(budget, true, indent, sort_keys).text(v);
}

List items_of(const Value& v, Budget& budget) {
  List out;
  if (v.is_undefined()) return out;
  if (v.is_list()) {
    budget.make(v.list().size() * sizeof(Value));
    return v.list();
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
