// Values of a template: plain data, and the budget of what rendering may compute.
#pragma once
#include <compare>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace tenon::jinja {

class Value;
using List = std::vector<Value>;

/// Keeps its members in insertion order.
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
  std::shared_ptr<const std::string> name;  ///< the name that was looked up, for messages; may be null
};
struct None {};
/// The only thing that templates can modify: {% set ns.x = 1 %}.
struct Namespace {
  std::shared_ptr<Dict> members;
};
/// A global function, or a method that is not called: it can be tested for being defined, but not printed.
struct Function {
  std::string name;
  bool method = false;
};
/// What filters such as map return: its items can be taken once.
struct GeneratorState;
using Generator = std::shared_ptr<GeneratorState>;

/// Python's types of what has items in order. Keys, Values and Items are those of a mapping: they have no item 0 and
/// equal no list.
enum class ListKind { Plain, Tuple, Range, Keys, Values, Items };

/// Deepest nesting of lists and mappings.
inline constexpr int kMaxValueDepth = 100;

/// Immutable except for namespaces and generators; copies share their contents. Making a list or mapping throws
/// RenderError beyond kMaxValueDepth, so that code that traverses or destroys values may be recursive.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  template <class T>
  requires(!std::is_same_v<std::decay_t<T>, Value>) Value(T data) : data_(std::move(data)) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(List list) : Value(std::move(list), ListKind::Plain) {}
  Value(List list, ListKind kind);
  Value(Dict dict);
  /// An undefined value named after a string value; shares the string.
  static Value undefined(const Value& name);
  static Value generator(List items);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  /// Integers, floats, and booleans, which count as 0 and 1.
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return std::holds_alternative<std::shared_ptr<const std::string>>(data_); }
  /// Of any ListKind.
  bool is_list() const { return std::holds_alternative<Shared<List>>(data_); }
  bool is_list(ListKind kind) const { return is_list() && this->kind() == kind; }
  /// A list with an item 0: not the keys, values or items of a mapping.
  bool is_sequence() const { return is_list() && kind() <= ListKind::Range; }
  bool is_generator() const { return std::holds_alternative<Generator>(data_); }
  bool is_dict() const { return std::holds_alternative<Shared<Dict>>(data_); }
  bool is_namespace() const { return std::holds_alternative<Namespace>(data_); }
  bool is_function() const { return std::holds_alternative<Function>(data_); }
  bool is_method() const { return is_function() && function().method; }

  bool boolean() const { return std::get<bool>(data_); }
  /// Of an integer or a boolean.
  int64_t integer() const { return is_bool() ? int64_t{boolean()} : std::get<int64_t>(data_); }
  double number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }
  const std::string& string() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const List& list() const { return std::get<Shared<List>>(data_)->items; }
  ListKind kind() const { return std::get<Shared<List>>(data_)->kind; }
  GeneratorState& generator() const { return *std::get<Generator>(data_); }
  const Dict& dict() const { return std::get<Shared<Dict>>(data_)->items; }
  const Function& function() const { return std::get<Function>(data_); }
  Dict& members() const { return *std::get<Namespace>(data_).members; }
  /// Whether both are one object, not copies that are equal.
  bool is_same_list(const Value& other) const {
    return std::get<Shared<List>>(data_) == std::get<Shared<List>>(other.data_);
  }
  /// The name under which an undefined value was looked up; empty if unknown.
  std::string_view name() const {
    const auto& name = std::get<Undefined>(data_).name;
    return name ? std::string_view(*name) : std::string_view();
  }

 private:
  template <class T>
  struct Nested {
    T items;
    int depth;
    ListKind kind = ListKind::Plain;
  };
  template <class T>
  using Shared = std::shared_ptr<const Nested<T>>;
  int depth() const;

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>, Shared<List>, Shared<Dict>,
               Namespace, Function, Generator>
      data_;
};

struct GeneratorState {
  Value items;    ///< a list
  size_t at = 0;  ///< the first that has not been taken
};

/// What rendering may use; a template that asks for more is refused. Every step and every byte read or made is counted,
/// so time and memory are bounded for any template.
class Budget {
 public:
  static constexpr uint64_t kMaxWork = uint64_t{64} << 20;   // bytes read; a step counts as kStep
  static constexpr uint64_t kMaxMade = uint64_t{128} << 20;  // bytes of strings and lists created
  static constexpr uint64_t kStep = 64;

  /// Looking up a key costs reading that key, however many keys there are.
  const Value* find(const Dict& dict, const std::string& key) {
    work(kStep + key.size());
    return dict.find(key);
  }

  void work(uint64_t bytes) { spend(work_, bytes, kMaxWork, "work"); }
  void make(uint64_t bytes) {
    work(bytes);
    spend(made_, bytes, kMaxMade, "memory");
  }

 private:
  static void spend(uint64_t& spent, uint64_t bytes, uint64_t most, const char* what);
  uint64_t work_ = 0, made_ = 0;
};

/// A problem during rendering; the renderer adds the line.
struct RenderError {
  std::string what;
  bool of_template = false;  ///< the template's fault: it must not ask for this, or must check its data before
};

/// "a string", "a list", "undefined 'x'", ... for messages.
std::string described(const Value& v);
/// From JSON; RenderError for integers beyond 64 bits. Depth is bounded by the caller's parser.
Value from_json(const nlohmann::ordered_json& json, int depth = 0);

bool truthy(const Value& v);
/// As the numbers are, not as the nearest floats.
std::partial_ordering order_of_numbers(const Value& a, const Value& b);
bool equal(const Value& a, const Value& b, Budget& budget);
/// As {{ v }} prints it, with Python's str().
std::string to_text(const Value& v, Budget& budget);
/// Python's json.dumps(v, ensure_ascii=False); without `indent` all is on one line.
std::string to_json(const Value& v, std::optional<std::string> indent, bool sort_keys, Budget& budget);
/// What a loop iterates over: a list's items, a string's characters, a dict's keys; nothing for undefined. Takes all
/// that a generator has left.
List items_of(const Value& v, Budget& budget);

}  // namespace tenon::jinja
