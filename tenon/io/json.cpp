#include "tenon/io/json.h"

#include <iterator>
#include <vector>

#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/core/utf8.h"
#include "tenon/io/files.h"

namespace tenon {
namespace {
using nlohmann::json;

// Removes the library's tag in "[json.exception.parse_error.101] parse error at line 1, column 5: ...".
std::string without_tag(std::string_view message) {
  const size_t end = message.find("] ");
  return shown(message.starts_with("[json.") && end != message.npos ? message.substr(end + 2) : message, 300);
}

// Checks every 64 KiB of text whether to stop, and whether a token is too long (the library copies a token several
// times before it reports an error in it).
class JsonWatch {
 public:
  JsonWatch(std::string_view text, const std::string& where, ErrorKind kind)
      : where_(where), kind_(kind), pause_(reinterpret_cast<uintptr_t>(text.data()) + kStretch) {}
  void event() { ++events_; }
  void pass(const char* at) {
    if (reinterpret_cast<uintptr_t>(at) != pause_) return;
    pause_ += kStretch;
    check_stop(where_);
    quiet_ = events_ == seen_ ? quiet_ + kStretch : 0;
    seen_ = events_;
    if (quiet_ > kMaxJsonToken)
      throw Error(kind_, where_,
                  "a string, number or blank in JSON is longer than " + std::to_string(kMaxJsonToken) + " bytes");
  }

 private:
  static constexpr size_t kStretch = 1 << 16;
  const std::string& where_;
  ErrorKind kind_;
  uintptr_t pause_;
  size_t events_ = 0, seen_ = 0, quiet_ = 0;
};

// The text as an input iterator for the library.
class JsonCursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  JsonCursor(const char* at, JsonWatch* watch) : at_(at), watch_(watch) {}
  reference operator*() const { return *at_; }
  JsonCursor& operator++() {
    watch_->pass(++at_);
    return *this;
  }
  bool operator==(const JsonCursor& o) const { return at_ == o.at_; }

 private:
  const char* at_;
  JsonWatch* watch_;
};

// Translates the library's events to ours.
class JsonSax : public nlohmann::json_sax<json> {
 public:
  JsonSax(JsonEvents& events, JsonWatch& watch, const std::string& where, ErrorKind kind)
      : events_(events), watch_(watch), where_(where), kind_(kind) {}
  bool null() override { return scalar(nullptr); }
  bool boolean(bool v) override { return scalar(v); }
  bool number_integer(number_integer_t v) override { return scalar(v); }
  bool number_unsigned(number_unsigned_t v) override { return scalar(v); }
  bool number_float(number_float_t v, const string_t&) override { return scalar(v); }
  bool string(string_t& v) override { return scalar(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& name) override {
    watch_.event();
    events_.key(std::move(name));
    return true;
  }
  bool start_object(std::size_t) override { return begin(true); }
  bool start_array(std::size_t) override { return begin(false); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    throw Error(kind_, where_, "invalid JSON: " + without_tag(e.what()));
  }

 private:
  bool scalar(json v) {
    watch_.event();
    events_.value(std::move(v));
    return true;
  }
  bool begin(bool object) {
    watch_.event();
    if (++depth_ > kMaxJsonDepth)
      throw Error(kind_, where_, "JSON nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    events_.begin(object);
    return true;
  }
  bool end() {
    watch_.event();
    --depth_;
    events_.end();
    return true;
  }

  JsonEvents& events_;
  JsonWatch& watch_;
  const std::string& where_;
  ErrorKind kind_;
  int depth_ = 0;
};

// Builds a tree from events. (The library's own callback parser scans all of a parent's members whenever a child ends:
// quadratic.)
class JsonTree : public JsonEvents {
 public:
  JsonTree(const std::string& where, ErrorKind kind) : where_(where), kind_(kind) {}
  void value(json v) override { place(std::move(v)); }
  void key(std::string name) override {
    const auto [at, added] = open_.back()->get_ref<json::object_t&>().emplace(std::move(name), nullptr);
    if (!added) throw Error(kind_, where_, "duplicate key '" + tenon::shown(at->first) + "' in JSON");
    member_ = &at->second;
  }
  void begin(bool object) override { open_.push_back(&place(object ? json::object() : json::array())); }
  void end() override { open_.pop_back(); }
  json take() { return std::move(root_); }

 private:
  json& place(json v) {
    if (++values_ > kMaxJsonValues)
      throw Error(kind_, where_, "more than " + std::to_string(kMaxJsonValues) + " values in JSON");
    if (open_.empty()) return root_ = std::move(v);
    if (open_.back()->is_array()) return open_.back()->emplace_back(std::move(v));
    return *member_ = std::move(v);
  }

  const std::string& where_;
  ErrorKind kind_;
  json root_;
  std::vector<json*> open_;  // objects and arrays not yet ended, outermost first
  json* member_ = nullptr;   // value of the last key
  size_t values_ = 0;
};

// The value with every string converted to UTF-8.
nlohmann::ordered_json as_utf8_strings(const nlohmann::ordered_json& value) {
  using nlohmann::ordered_json;
  if (value.is_string()) return as_utf8(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  ordered_json out = value.is_object() ? ordered_json::object() : ordered_json::array();
  for (const auto& [name, item] : value.items())
    if (value.is_object())
      out[as_utf8(name)] = as_utf8_strings(item);
    else
      out.push_back(as_utf8_strings(item));
  return out;
}

}  // namespace

void parse_json_events(std::string_view text, const std::string& where, ErrorKind kind, JsonEvents& events) {
  if (const auto bad = first_invalid_utf8(text))
    throw Error(kind, where, "invalid UTF-8 in JSON at byte " + std::to_string(*bad));
  // The library takes it as the end and ignores what follows.
  if (const size_t zero = text.find('\0'); zero != text.npos)
    throw Error(kind, where, "invalid JSON: a zero byte at byte " + std::to_string(zero));
  JsonWatch watch(text, where, kind);
  JsonSax sax(events, watch, where, kind);
  json::sax_parse(JsonCursor(text.data(), &watch), JsonCursor(text.data() + text.size(), &watch), &sax);
}

json parse_json(std::string_view text, const std::string& where, ErrorKind kind) {
  JsonTree tree(where, kind);
  parse_json_events(text, where, kind, tree);
  return tree.take();
}

json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

namespace {
json object_of(json value, const std::filesystem::path& path) {
  TENON_CHECK(Model, value.is_object(), path.string()) << "expected an object, found " << value.type_name();
  return value;
}
}  // namespace

json read_json_object(const std::filesystem::path& path) {
  return file_exists(path) ? object_of(read_json(path), path) : nullptr;
}

json read_python_json_object(const std::filesystem::path& path) {
  if (!file_exists(path)) return nullptr;
  constexpr std::string_view kInfinity = "-Infinity", kNull = "null     ";  // as long, so that messages name its bytes
  std::string text = read_file(path);
  bool inside = false;  // of a string
  for (size_t i = 0; i < text.size(); ++i) {
    if (inside && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      inside = !inside;
    else if (!inside && text.compare(i, kInfinity.size(), kInfinity) == 0)
      text.replace(i, kInfinity.size(), kNull);
  }
  return object_of(parse_json(text, path.string()), path);
}

bool json_flag(const nlohmann::json& object, const char* key, const std::string& where, bool otherwise,
               const char* front) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || found->is_null()) return otherwise;
  TENON_CHECK(Model, found->is_boolean(), where)
      << front << key << ": expected true or false, found " << shown_json(*found);
  return found->get<bool>();
}

std::string shown_json(const json& value) {
  // Avoids serialising a large value only to shorten it.
  if (value.is_structured() && value.size() > kShownBytes / 2)
    return std::string(value.type_name()) + " of " + std::to_string(value.size());
  if (value.is_string()) return std::string("\"").append(shown(value.get_ref<const std::string&>())).append("\"");
  return shown(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  try {
    return value.dump(indent, ' ', true);
  } catch (const json::exception&) {  // a string is not UTF-8
    return as_utf8_strings(value).dump(indent, ' ', true);
  }
}

}  // namespace tenon
