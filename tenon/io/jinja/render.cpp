#include "tenon/io/jinja/render.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "tenon/core/error.h"
#include "tenon/io/jinja/library.h"

namespace tenon::jinja {
namespace {

constexpr std::array<std::string_view, 3> kFunctions = {"namespace", "raise_exception", "range"};
constexpr int64_t kMaxRange = 100'000;
constexpr uint64_t kScope = Budget::kStep / 2;  // cost of looking up a name in one scope

// What {{ loop }} knows of the current loop.
struct LoopState {
  const List& items;
  size_t begin = 0;           // the first item: a generator's others have been taken before
  size_t index = 0;           // from `begin`
  mutable size_t looked = 0;  // how many items its members needed

  size_t size() const { return items.size() - begin; }
  const Value& item(size_t i) const { return items[begin + i]; }
};

struct Scope {
  std::unordered_map<std::string, Value> variables;
  const LoopState* loop = nullptr;
};

enum class Flow { Next, Break, Continue };

class Renderer {
 public:
  Renderer(const Dict& variables, Budget& budget, const std::string& where)
      : variables_(variables), budget_(budget), where_(where), scopes_(1) {}
  // Namespaces may contain themselves; clearing them breaks such cycles.
  ~Renderer() {
    for (const auto& members : namespaces_) members->clear();
  }
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  std::string run(const Body& body) {
    std::string out;
    execute(body, out);
    return out;
  }

 private:
  // --- statements
  Flow execute(const Body& body, std::string& out) {
    for (const Statement& s : body) {
      try {
        budget_.work(Budget::kStep);
        if (const Flow flow = execute(s, out); flow != Flow::Next) return flow;
      } catch (const RenderError& e) {
        throw Error(e.of_template ? ErrorKind::Model : ErrorKind::Usage, where_,
                    "line " + std::to_string(s.line) + ": " + e.what);
      }
    }
    return Flow::Next;
  }

  void print(const std::string& text, std::string& out) {
    budget_.make(text.size());
    if (out.size() + text.size() > kMaxOutput)
      throw RenderError{"prints more than " + std::to_string(kMaxOutput) + " bytes", true};
    out += text;
  }

  Flow execute(const Statement& s, std::string& out) {
    switch (s.kind) {
      case StatementKind::Text:
        print(s.text, out);
        return Flow::Next;
      case StatementKind::Print:
        print(to_text(eval(*s.expression), budget_), out);
        return Flow::Next;
      case StatementKind::If:
        for (const Branch& branch : s.branches)
          if (!branch.condition || truthy(eval(*branch.condition))) return execute(branch.body, out);
        return Flow::Next;
      case StatementKind::For:
        return loop(s, out);
      case StatementKind::Set:
        assign(s, eval(*s.expression));
        return Flow::Next;
      case StatementKind::SetBody:
        assign(s, captured(s.body));
        return Flow::Next;
      case StatementKind::Block: {
        const ScopeGuard guard(*this, nullptr);
        return execute(s.body, out);
      }
      case StatementKind::Break:
        return Flow::Break;
      case StatementKind::Continue:
        return Flow::Continue;
    }
    return Flow::Next;
  }

  std::string captured(const Body& body) {
    const ScopeGuard guard(*this, nullptr);
    std::string out;
    execute(body, out);
    return out;
  }

  class ScopeGuard {
   public:
    ScopeGuard(Renderer& r, const LoopState* loop) : renderer_(r) { renderer_.scopes_.push_back({{}, loop}); }
    ~ScopeGuard() { renderer_.scopes_.pop_back(); }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Renderer& renderer_;
  };

  void bind(const std::vector<std::string>& names, const Value& item) {
    if (names.size() == 1) {
      scopes_.back().variables[names[0]] = item;
      return;
    }
    const List parts = items_of(item, budget_);
    if (parts.size() != names.size())
      throw RenderError{"expected " + std::to_string(names.size()) + " items to unpack, found " +
                        std::to_string(parts.size())};
    for (size_t i = 0; i < names.size(); ++i) scopes_.back().variables[names[i]] = parts[i];
  }

  List chosen_items(const Statement& s, const Value& source) {
    List items = items_of(source, budget_);
    if (!s.condition) return items;
    List kept;
    for (const Value& item : items) {
      budget_.work(Budget::kStep);
      const ScopeGuard guard(*this, nullptr);
      bind(s.names, item);
      if (truthy(eval(*s.condition))) kept.push_back(item);
    }
    return kept;
  }

  // Marks as taken what a loop has taken of a generator. Another loop over it inside this one would take the rest.
  static void take(const Value& source, const LoopState& state, size_t& taken) {
    if (!source.is_generator()) return;
    GeneratorState& g = source.generator();
    if (g.at != taken) throw RenderError{"a generator is read inside a loop over it; |list makes it a list", true};
    taken = g.at = std::max({g.at, state.begin + state.index + 1, state.begin + state.looked});
  }

  Flow loop(const Statement& s, std::string& out) {
    const Value source = eval(*s.expression);
    // Not copied: long lists are iterated in nested loops.
    const bool as_it_is = (source.is_list() || source.is_generator()) && !s.condition;
    const List own = as_it_is ? List() : chosen_items(s, source);
    LoopState state{!as_it_is ? own : source.is_list() ? source.list() : source.generator().items.list()};
    if (as_it_is && source.is_generator()) state.begin = source.generator().at;
    size_t taken = state.begin;
    bool completed = false;  // Jinja's else: no iteration reached the end of the body
    for (; state.index < state.size(); ++state.index) {
      budget_.work(Budget::kStep);
      if (as_it_is) take(source, state, taken);
      const ScopeGuard guard(*this, &state);
      bind(s.names, state.item(state.index));
      const Flow flow = execute(s.body, out);
      if (as_it_is) take(source, state, taken);
      if (flow == Flow::Break) break;
      completed |= flow == Flow::Next;
    }
    if (completed) return Flow::Next;
    const ScopeGuard guard(*this, nullptr);
    return execute(s.otherwise, out);
  }

  void assign(const Statement& s, Value value) {
    if (s.attribute.empty()) {
      scopes_.back().variables[s.names[0]] = std::move(value);
      return;
    }
    const Value target = lookup(s.names[0]);
    if (!target.is_namespace())
      throw RenderError{"only a namespace's members can be set, not those of " + described(target), true};
    if (s.attribute.starts_with('_')) throw RenderError{"a namespace's members do not begin with '_'", true};
    budget_.make(s.attribute.size() + sizeof(Value));
    target.members().set(s.attribute, std::move(value));
  }

  // --- names
  const LoopState* loop_state() const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      if (scopes_[i].variables.count("loop")) return nullptr;
      if (scopes_[i].loop) return scopes_[i].loop;
    }
    return nullptr;
  }

  Value lookup(const std::string& name) {
    budget_.work(scopes_.size() * kScope);
    for (size_t i = scopes_.size(); i-- > 0;) {
      const auto found = scopes_[i].variables.find(name);
      if (found != scopes_[i].variables.end()) return found->second;
      if (name == "loop" && scopes_[i].loop) throw RenderError{"'loop' can be used only through its members", true};
    }
    if (const Value* v = variables_.find(name)) return *v;
    for (const std::string_view function : kFunctions)
      if (name == function) return Function{name};
    budget_.make(sizeof(Value) + name.size());
    return Value::undefined(name);
  }

  static Value loop_member(const LoopState& loop, const std::string& name) {
    const auto index = static_cast<int64_t>(loop.index), size = static_cast<int64_t>(loop.size());
    if (name == "last" || name == "nextitem") loop.looked = std::min(loop.size(), loop.index + 2);
    if (name.starts_with("revindex") || name == "length") loop.looked = loop.size();
    if (name == "depth" || name == "depth0") return int64_t{name == "depth"};  // recursive loops are not supported
    if (name == "index") return index + 1;
    if (name == "index0") return index;
    if (name == "revindex") return size - index;
    if (name == "revindex0") return size - index - 1;
    if (name == "first") return index == 0;
    if (name == "last") return index + 1 == size;
    if (name == "length") return size;
    if (name == "previtem") return index > 0 ? loop.item(loop.index - 1) : Value::undefined(name);
    if (name == "nextitem") return index + 1 < size ? loop.item(loop.index + 1) : Value::undefined(name);
    return Value::undefined(name);
  }

  // --- expressions
  Value eval(const Expression& e) {
    budget_.work(Budget::kStep);
    const auto operand = [&](size_t i) { return eval(*e.operands[i]); };
    const auto optional = [&](size_t i) { return e.operands[i] ? eval(*e.operands[i]) : Value(); };
    switch (e.kind) {
      case ExpressionKind::Literal:
        return e.value;
      case ExpressionKind::Name:
        return lookup(e.name);
      case ExpressionKind::MakeList:
        return make_list(e);
      case ExpressionKind::MakeDict:
        return make_dict(e);
      case ExpressionKind::Attribute:
        return attribute(e);
      case ExpressionKind::Item:
        return item_of(operand(0), operand(1), budget_);
      case ExpressionKind::Slice:
        return slice_of(operand(0), optional(1), optional(2), optional(3), budget_);
      case ExpressionKind::Call:
        return call_function(e);
      case ExpressionKind::Method:
        return apply_method(e.name, call(e));
      case ExpressionKind::Filter:
        return apply_filter(e.name, call(e));
      case ExpressionKind::Test:
        return apply_test(e.name, call(e));
      case ExpressionKind::Not:
        return !truthy(operand(0));
      case ExpressionKind::Negative:
        return negative(numeric(operand(0)));
      case ExpressionKind::Positive:
        return arithmetic("+", int64_t{0}, numeric(operand(0)), budget_);
      case ExpressionKind::And: {
        Value left = operand(0);
        return truthy(left) ? operand(1) : left;
      }
      case ExpressionKind::Or: {
        Value left = operand(0);
        return truthy(left) ? left : operand(1);
      }
      case ExpressionKind::If:
        return truthy(operand(0)) ? operand(1) : optional(2);
      case ExpressionKind::Compare: {
        const Value left = operand(0);
        return compare(e.name, left, operand(1), budget_);
      }
      case ExpressionKind::Arithmetic: {
        const Value left = operand(0);
        return arithmetic(e.name, left, operand(1), budget_);
      }
    }
    return Undefined{};
  }

  Value negative(const Value& v) { return v.is_float() ? Value(-v.number()) : arithmetic("-", int64_t{0}, v, budget_); }
  static Value numeric(Value v) {
    if (!v.is_number()) throw RenderError{"expected a number after a sign, found " + described(v)};
    return v;
  }

  Value make_list(const Expression& e) {
    budget_.make(e.operands.size() * sizeof(Value));
    List out;
    for (const ExpressionPtr& item : e.operands) out.push_back(eval(*item));
    return out;
  }

  Value make_dict(const Expression& e) {
    budget_.make(e.operands.size() * 2 * sizeof(Value));
    Dict out;
    for (size_t i = 0; i + 1 < e.operands.size(); i += 2) {
      const Value key = eval(*e.operands[i]);
      if (!key.is_string()) throw RenderError{"a mapping's keys are strings, not " + described(key)};
      budget_.make(2 * key.string().size());
      out.set(key.string(), eval(*e.operands[i + 1]));
    }
    return out;
  }

  Value attribute(const Expression& e) {
    const Expression& of = *e.operands[0];
    if (of.kind == ExpressionKind::Name && of.name == "loop")
      if (const LoopState* loop = loop_state()) return loop_member(*loop, e.name);
    return attribute_of(eval(of), e.name, budget_);
  }

  // The first operand is the value before the filter, test or dot.
  Call call(const Expression& e) {
    Call out{eval(*e.operands[0]), {}, {}, budget_};
    for (size_t i = 1; i < e.operands.size(); ++i) out.arguments.push_back(eval(*e.operands[i]));
    for (const auto& [name, value] : e.named) out.named.emplace_back(name, eval(*value));
    return out;
  }

  Value call_function(const Expression& e) {
    const Value function = lookup(e.name);
    if (!function.is_function() || function.is_method())
      throw RenderError{described(function) + " cannot be called", true};
    const std::string& called = function.function().name;
    std::vector<Value> arguments;
    for (const ExpressionPtr& argument : e.operands) arguments.push_back(eval(*argument));
    if (called == "namespace") return make_namespace(e);
    if (called == "range") return range(arguments);
    throw RenderError{arguments.empty() ? "the template raised an exception" : to_text(arguments[0], budget_)};
  }

  Value make_namespace(const Expression& e) {
    if (!e.operands.empty()) throw RenderError{"namespace() takes named arguments only", true};
    budget_.make((e.named.size() + 1) * 4 * sizeof(Value));
    const auto members = std::make_shared<Dict>();
    namespaces_.push_back(members);
    for (const auto& [name, value] : e.named) members->set(name, eval(*value));
    return Namespace{members};
  }

  Value range(const std::vector<Value>& arguments) {
    for (const Value& a : arguments)
      if (!a.is_int()) throw RenderError{"range() takes integers, not " + described(a)};
    if (arguments.empty() || arguments.size() > 3) throw RenderError{"range() takes one to three numbers", true};
    const int64_t begin = arguments.size() > 1 ? arguments[0].integer() : 0;
    const int64_t end = arguments[arguments.size() > 1 ? 1 : 0].integer();
    const int64_t step = arguments.size() > 2 ? arguments[2].integer() : 1;
    if (step == 0) throw RenderError{"range() with step 0", true};
    List out;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
      if (static_cast<int64_t>(out.size()) >= kMaxRange)
        throw RenderError{"range() of more than " + std::to_string(kMaxRange) + " numbers", true};
      budget_.make(sizeof(Value));
      out.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return {std::move(out), ListKind::Range};
  }

  const Dict& variables_;
  Budget& budget_;
  const std::string& where_;
  std::vector<Scope> scopes_;
  std::vector<std::shared_ptr<Dict>> namespaces_;
};

}  // namespace

std::string render(const Body& body, const Dict& variables, Budget& budget, const std::string& where) {
  return Renderer(variables, budget, where).run(body);
}

}  // namespace tenon::jinja
