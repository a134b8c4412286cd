// Errors: one type, thrown where the fault is detected, translated once at each boundary (command line, C, Python).
#pragma once
#include <exception>
#include <sstream>
#include <string>

namespace tenon {

/// What went wrong; determines the process's exit code.
enum class ErrorKind {
  Internal = 1,    ///< a bug of ours or a failing system call: exit code 1
  Usage = 2,       ///< a bad argument: exit code 2
  Model = 3,       ///< a model file missing, unreadable or not what it claims: exit code 3
  Memory = 4,      ///< the plan does not fit or memory ran out: exit code 4
  Numeric = 5,     ///< a non-finite value, or a check outside its tolerance: exit code 5
  Device = 6,      ///< no usable device or driver: exit code 6
  Cancelled = 130  ///< interrupted by the user: exit code 130
};

/// An error that names the object (`where`), says what was expected and found (`what`), and may give advice (`hint`).
/// what() is one line of at most kMessageBytes that is safe for a terminal: foreign text is escaped and shortened.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string where, std::string what, const std::string& hint = {});
  const char* what() const noexcept override { return text_.c_str(); }
  ErrorKind kind() const { return kind_; }
  /// As given, not escaped.
  const std::string& where() const { return where_; }
  const std::string& hint() const { return hint_; }
  /// The process exit code for this kind of error (see ErrorKind).
  int exit_code() const { return static_cast<int>(kind_); }
  /// The same error with another kind.
  Error with_kind(ErrorKind kind) const;
  /// The same error about another object.
  Error with_where(std::string where) const;

 private:
  ErrorKind kind_;
  std::string where_, what_, hint_, text_;
};

namespace detail {
// Collects a message with << and throws at the end of the full expression.
class Thrower {
 public:
  Thrower(ErrorKind kind, std::string where) : kind_(kind), where_(std::move(where)) {}
  [[noreturn]] ~Thrower() noexcept(false) { throw Error(kind_, where_, out_.str()); }
  template <class T>
  Thrower& operator<<(const T& value) {
    out_ << value;
    return *this;
  }

 private:
  ErrorKind kind_;
  std::string where_;
  std::ostringstream out_;
};
}  // namespace detail

/// Throws Error{kind, where, message} unless `condition` holds: `TENON_CHECK(Usage, x > 0, "generate") << "...";`
#define TENON_CHECK(kind, condition, where) \
  if (condition) {                          \
  } else                                    \
    ::tenon::detail::Thrower(::tenon::ErrorKind::kind, where)

}  // namespace tenon
