// Filters, tests and methods of templates, and the operators between values.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/io/jinja/value.h"

namespace tenon::jinja {

/// What a filter, test, method or function is called with.
struct Call {
  Value subject;  ///< in front of the | or is or dot
  std::vector<Value> arguments;
  std::vector<std::pair<std::string, Value>> named;
  Budget& budget;

  /// The argument at `position`, or of that name; undefined if it was not given.
  Value argument(size_t position, std::string_view name) const;
};

/// Whether a name is one of them: asked when a template is parsed.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);
bool is_method(std::string_view name);

/// RenderError for arguments that do not fit.
Value apply_filter(const std::string& name, const Call& call);
bool apply_test(const std::string& name, const Call& call);
Value apply_method(const std::string& name, const Call& call);

/// + - * / // % ~ as Python has them; integers beyond 64 bits are refused.
Value arithmetic(const std::string& op, const Value& a, const Value& b, Budget& budget);
/// == != < <= > >= in
bool compare(const std::string& op, const Value& a, const Value& b, Budget& budget);
/// value.name and value["name"], value[0]; undefined where there is none. No way to anything but data.
Value member_of(const Value& v, const Value& key, Budget& budget);
/// Where `part` begins in `text` at or behind `from`, npos if nowhere. Linear, whatever they are.
size_t find_part(std::string_view text, std::string_view part, size_t from = 0);
/// value[begin:end:step] of a list or string; undefined bounds are left out.
Value slice_of(const Value& v, const Value& begin, const Value& end, const Value& step, Budget& budget);

}  // namespace tenon::jinja
