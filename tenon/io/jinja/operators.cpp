// Operators between values.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tenon/core/utf8.h"
#include "tenon/io/jinja/library.h"

namespace tenon::jinja {
namespace {

[[noreturn]] void no_operator(const std::string& op, const Value& a, const Value& b) {
  throw RenderError{"'" + op + "' between " + described(a) + " and " + described(b)};
}

[[noreturn]] void too_large() { throw RenderError{"an integer beyond 64 bits", true}; }

Value integers(const std::string& op, int64_t a, int64_t b) {
  int64_t out = 0;
  if (op == "+" && !__builtin_add_overflow(a, b, &out)) return out;
  if (op == "-" && !__builtin_sub_overflow(a, b, &out)) return out;
  if (op == "*" && !__builtin_mul_overflow(a, b, &out)) return out;
  if (op == "+" || op == "-" || op == "*") too_large();
  if (b == 0) throw RenderError{"division by zero", true};
  if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) {
    if (op == "%") return int64_t{0};
    if (a == std::numeric_limits<int64_t>::min()) too_large();
    return -a;
  }
  const int64_t quotient = a / b, rest = a % b;
  const bool down = rest != 0 && (rest < 0) != (b < 0);  // Python rounds towards minus infinity
  return op == "//" ? quotient - (down ? 1 : 0) : rest + (down ? b : 0);
}

Value floats(const std::string& op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (b == 0) throw RenderError{"division by zero", true};
  if (op == "/") return a / b;
  const double rest = std::fmod(a, b), floored = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  return op == "%" ? floored : std::floor(a / b);
}

Value repeated(const std::string& text, int64_t count, Budget& budget) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (times > Budget::kMaxMade) throw RenderError{"repeats a string too often", true};
  budget.make(text.size() * std::max<uint64_t>(times, 1));
  std::string out;
  for (uint64_t i = 0; i < times && !text.empty(); ++i) out += text;
  return out;
}

bool contains(const Value& whole, const Value& part, Budget& budget) {
  if (whole.is_undefined()) return false;
  if (whole.is_string()) {
    if (!part.is_string()) no_operator("in", part, whole);
    budget.work(whole.string().size() + part.string().size());
    return find_part(whole.string(), part.string()) != std::string::npos;
  }
  if (whole.is_dict()) return part.is_string() && budget.find(whole.dict(), part.string());
  if (whole.is_generator()) {  // takes the items up to the one found
    GeneratorState& g = whole.generator();
    while (g.at < g.items.list().size())
      if (equal(g.items.list()[g.at++], part, budget)) return true;
    return false;
  }
  if (!whole.is_list()) no_operator("in", part, whole);
  for (const Value& item : whole.list())
    if (equal(item, part, budget)) return true;
  return false;
}

// Compares numbers, or strings by code points (which is the order of their bytes). NaN is unordered.
std::partial_ordering order_of(const std::string& op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) return order_of_numbers(a, b);
  if (!a.is_string() || !b.is_string()) no_operator(op, a, b);
  budget.work(std::min(a.string().size(), b.string().size()));
  return a.string() <=> b.string();
}

// The indices that a Python slice selects.
std::vector<int64_t> indices(int64_t length, const Value& begin, const Value& end, const Value& step) {
  const auto bound = [](const Value& v, int64_t otherwise) {
    if (v.is_undefined() || v.is_none()) return otherwise;
    if (!v.is_int()) throw RenderError{"expected an integer in a slice, found " + described(v)};
    return v.integer();
  };
  constexpr int64_t kFar = int64_t{1} << 62;
  const int64_t by = std::clamp(bound(step, 1), -kFar, kFar);
  if (by == 0) throw RenderError{"a slice with step 0", true};
  const auto clamped = [&](int64_t i) {
    if (i < 0) i = i < -length ? -1 : i + length;
    return std::clamp<int64_t>(i, by > 0 ? 0 : -1, by > 0 ? length : length - 1);
  };
  const bool has_begin = !begin.is_undefined() && !begin.is_none(), has_end = !end.is_undefined() && !end.is_none();
  const int64_t from = has_begin ? clamped(bound(begin, 0)) : by > 0 ? 0 : length - 1;
  const int64_t to = has_end ? clamped(bound(end, 0)) : by > 0 ? length : -1;
  std::vector<int64_t> out;
  if (std::abs(by) >= length && length > 0) {  // at most one item; otherwise `by` may be as large as any number
    if (by > 0 ? from < to : from > to) out.push_back(from);
    return out;
  }
  for (int64_t i = from; by > 0 ? i < to : i > to; i += by) out.push_back(i);
  return out;
}

}  // namespace

std::vector<size_t> starts_of(const std::string& text, Budget& budget) {
  budget.make(text.size() * sizeof(size_t));
  std::vector<size_t> out;
  for (size_t i = 0; i < text.size();) {
    out.push_back(i);
    next_code_point(text, i);
  }
  out.push_back(text.size());
  return out;
}

size_t find_part(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

Value arithmetic(const std::string& op, const Value& a, const Value& b, Budget& budget) {
  if (op == "~") return to_text(a, budget).append(to_text(b, budget));
  if (a.is_number() && b.is_number())
    return a.is_float() || b.is_float() ? floats(op, a.number(), b.number()) : integers(op, a.integer(), b.integer());
  if (op == "+" && a.is_string() && b.is_string()) {
    budget.make(a.string().size() + b.string().size());
    return a.string() + b.string();
  }
  const bool joined = (a.is_list(ListKind::Plain) && b.is_list(ListKind::Plain)) ||
                      (a.is_list(ListKind::Tuple) && b.is_list(ListKind::Tuple));
  if (op == "+" && joined) {
    budget.make((a.list().size() + b.list().size()) * sizeof(Value));
    List out = a.list();
    out.insert(out.end(), b.list().begin(), b.list().end());
    return {std::move(out), a.kind()};
  }
  if (op == "*" && a.is_string() && (b.is_int() || b.is_bool())) return repeated(a.string(), b.integer(), budget);
  if (op == "*" && b.is_string() && (a.is_int() || a.is_bool())) return repeated(b.string(), a.integer(), budget);
  no_operator(op, a, b);
}

bool compare(const std::string& op, const Value& a, const Value& b, Budget& budget) {
  if (op == "in") return contains(b, a, budget);
  if (op == "==") return equal(a, b, budget);
  if (op == "!=") return !equal(a, b, budget);
  const std::partial_ordering order = order_of(op, a, b, budget);
  if (op == "<") return std::is_lt(order);
  if (op == "<=") return std::is_lteq(order);
  return op == ">" ? std::is_gt(order) : std::is_gteq(order);
}

Value member_of(const Value& v, const Value& key, Budget& budget) {
  if (v.is_undefined())
    throw RenderError{described(v) + " has no " + (key.is_string() ? "'" + key.string() + "'" : std::string("items"))};
  if (key.is_string()) {
    const Value* found = v.is_dict()        ? budget.find(v.dict(), key.string())
                         : v.is_namespace() ? budget.find(v.members(), key.string())
                                            : nullptr;
    return found ? *found : Value::undefined(key);
  }
  if (!key.is_int() && !key.is_bool()) return Undefined{};
  int64_t i = key.integer();
  if (v.is_sequence()) {
    const auto size = static_cast<int64_t>(v.list().size());
    if (i < 0) i += size;
    return i >= 0 && i < size ? v.list()[static_cast<size_t>(i)] : Value(Undefined{});
  }
  if (!v.is_string()) return Undefined{};
  const std::vector<size_t> starts = starts_of(v.string(), budget);
  const auto size = static_cast<int64_t>(starts.size()) - 1;
  if (i < 0) i += size;
  if (i < 0 || i >= size) return Undefined{};
  const auto at = static_cast<size_t>(i);
  return v.string().substr(starts[at], starts[at + 1] - starts[at]);
}

Value slice_of(const Value& v, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  if (v.is_sequence()) {
    budget.make(v.list().size() * (sizeof(Value) + sizeof(int64_t)));
    List out;
    for (const int64_t i : indices(static_cast<int64_t>(v.list().size()), begin, end, step))
      out.push_back(v.list()[static_cast<size_t>(i)]);
    return {std::move(out), v.kind()};
  }
  if (!v.is_string()) throw RenderError{"cannot slice " + described(v)};
  const std::vector<size_t> starts = starts_of(v.string(), budget);
  std::string out;
  for (const int64_t i : indices(static_cast<int64_t>(starts.size()) - 1, begin, end, step)) {
    const auto at = static_cast<size_t>(i);
    out += v.string().substr(starts[at], starts[at + 1] - starts[at]);
  }
  budget.make(out.size());
  return out;
}

}  // namespace tenon::jinja
