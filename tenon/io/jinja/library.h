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
/// value.name and value["name"], value[0]; undefined if absent. Reaches nothing but data.
Value member_of(const Value& v, const Value& key, Budget& budget);
/// Position of `part` in `text` at or after `from`, npos if there is none. Linear for any input.
size_t find_part(std::string_view text, std::string_view part, size_t from = 0);
/// value[begin:end:step] of a list or string; undefined bounds count as omitted.
Value slice_of(const Value& v, const Value& begin, const Value& end, const Value& step, Budget& budget);

}  // namespace tenon::jinja
