// Filters, tests and methods of templates, and operators between values.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/io/jinja/value.h"

namespace tenon::jinja {

/// The arguments of a filter, test, method or function.
struct Call {
  Value subject;  ///< the value before the | or `is` or dot
  std::vector<Value> arguments;
  std::vector<std::pair<std::string, Value>> named;
  Budget& budget;

  /// The argument at `position`, or of that name; undefined if not given.
  Value argument(size_t position, std::string_view name) const;
};

/// Whether there is a filter, test, method or function of this name: asked when a template is parsed.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);
bool is_method(std::string_view name);

/// RenderError for unsuitable arguments.
Value apply_filter(const std::string& name, const Call& call);
bool apply_test(const std::string& name, const Call& call);
Value apply_method(const std::string& name, const Call& call);

/// + - * / // % ~ with Python's semantics; results beyond 64-bit integers are refused.
Value arithmetic(const std::string& op, const Value& a, const Value& b, Budget& budget);
/// == != < <= > >= in
bool compare(const std::string& op, const Value& a, const Value& b, Budget& budget);
/// A mapping's value, or a list's or string's item; undefined if absent. Reaches nothing but data.
Value member_of(const Value& v, const Value& key, Budget& budget);
/// value.name: Python's method of that name, else the member. As jinja2, so that a key 'items' is found only as
/// value["items"].
Value attribute_of(const Value& v, const std::string& name, Budget& budget);
/// value[key]: the member, else the method of that name.
Value item_of(const Value& v, const Value& key, Budget& budget);
/// A mapping's keys with their values, as tuples; nothing for undefined. `what` is who asks.
List pairs_of(const Value& v, const char* what, Budget& budget);
/// The filter and the method.
Value replace(const Call& call);
/// A string argument of `what`.
const std::string& string_of(const Value& v, const char* what);
/// Offsets of a string's code points, and its length.
std::vector<size_t> starts_of(const std::string& text, Budget& budget);
/// Position of `part` in `text` at or after `from`, npos if there is none. Linear for any input.
size_t find_part(std::string_view text, std::string_view part, size_t from = 0);
/// value[begin:end:step] of a list or string; undefined bounds count as omitted.
Value slice_of(const Value& v, const Value& begin, const Value& end, const Value& step, Budget& budget);

}  // namespace tenon::jinja
