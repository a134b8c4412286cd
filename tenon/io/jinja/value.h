// Values of a template: plain data, and what rendering is allowed to make of it.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace tenon::jinja {

class Value;
using List = std::vector<Value>;

/// Members in the order in which they came.
class Dict {
 public:
  const Value* find(const std::string& key) const;
  void set(const std::string& key, Value value);
  void clear();
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, Value>> items_;
  std::unordered_map<std::string, size_t> index_;
};

struct Undefined {
  std::shared_ptr<const std::string> name;  ///< what was looked for, for messages; may be null
};
struct None {};
/// The one thing that templates can change: {% set ns.x = 1 %}.
struct Namespace {
  std::shared_ptr<Dict> members;
};
/// A global function, which can be called and asked whether it is defined.
struct Function {
  std::string name;
};

/// Levels of lists and mappings in one another.
inline constexpr int kMostValueDepth = 100;

/// Immutable but for namespaces; copies share what they hold. Making a list or mapping throws RenderError beyond
/// kMostValueDepth: what goes through values may then be recursive, and so is their destruction.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  template <class T>
  requires(!std::is_same_v<std::decay_t<T>, Value>) Value(T data) : data_(std::move(data)) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(List list);
  Value(Dict dict);
  /// Undefined by the name that a string is; shares the string.
  static Value undefined(const Value& name);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  /// Integers, floats, and truth values, which count as 0 and 1.
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return std::holds_alternative<std::shared_ptr<const std::string>>(data_); }
  bool is_list() const { return std::holds_alternative<Shared<List>>(data_); }
  bool is_dict() const { return std::holds_alternative<Shared<Dict>>(data_); }
  bool is_namespace() const { return std::holds_alternative<Namespace>(data_); }
  bool is_function() const { return std::holds_alternative<Function>(data_); }

  bool boolean() const { return std::get<bool>(data_); }
  /// Of an integer or a truth value.
  int64_t integer() const { return is_bool() ? int64_t{boolean()} : std::get<int64_t>(data_); }
  double number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }
  const std::string& string() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const List& list() const { return std::get<Shared<List>>(data_)->items; }
  const Dict& dict() const { return std::get<Shared<Dict>>(data_)->items; }
  Dict& members() const { return *std::get<Namespace>(data_).members; }
  /// What an undefined value was looked for as, empty if that is not known.
  std::string_view name() const {
    const auto& name = std::get<Undefined>(data_).name;
    return name ? std::string_view(*name) : std::string_view();
  }

 private:
  template <class T>
  struct Nested {
    T items;
    int depth;
  };
  template <class T>
  using Shared = std::shared_ptr<const Nested<T>>;
  int depth() const;

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>, Shared<List>, Shared<Dict>,
               Namespace, Function>
      data_;
};

/// What rendering may use; a template that asks for more is refused. Every step and every byte that is read or made is
/// counted, so that time and memory are bounded whatever the template does.
class Budget {
 public:
  static constexpr uint64_t kMostWork = uint64_t{64} << 20;   // bytes looked at; a step counts as kStep
  static constexpr uint64_t kMostMade = uint64_t{128} << 20;  // bytes of strings and lists made
  static constexpr uint64_t kStep = 64;

  /// A key is read to find it among others, whatever their number.
  const Value* find(const Dict& dict, const std::string& key) {
    work(kStep + key.size());
    return dict.find(key);
  }

  void work(uint64_t bytes) { spend(work_, bytes, kMostWork, "work"); }
  void make(uint64_t bytes) {
    work(bytes);
    spend(made_, bytes, kMostMade, "memory");
  }

 private:
  static void spend(uint64_t& spent, uint64_t bytes, uint64_t most, const char* what);
  uint64_t work_ = 0, made_ = 0;
};

/// A problem that rendering met; the renderer adds the line.
struct RenderError {
  std::string what;
  bool of_template = false;  ///< the template's fault, not that of what it was given
};

/// "a string", "a list", "undefined 'x'", ... for messages.
std::string described(const Value& v);
/// From JSON; RenderError for integers beyond 64 bits. Depth is bounded by the caller's parser.
Value from_json(const nlohmann::ordered_json& json, int depth = 0);

bool truthy(const Value& v);
bool equal(const Value& a, const Value& b, Budget& budget);
/// As {{ v }} prints it: Python's str().
std::string to_text(const Value& v, Budget& budget);
/// Python's json.dumps(v, ensure_ascii=False); `indent` < 0 is one line.
std::string to_json(const Value& v, int indent, bool sort_keys, Budget& budget);
/// Items that a loop goes over: of a list, of a string its characters, of a dict its keys; of undefined none.
List items_of(const Value& v, Budget& budget);

}  // namespace tenon::jinja
