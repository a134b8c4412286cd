// A function traced by tenon.fuse for one set of shapes: a plan over the caller's arrays.
#pragma once
#include <mutex>
#include <optional>
#include <vector>

#include "apps/python/graph.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"

namespace tenon::python {

/// A value and its name in the plan and in messages.
struct NamedValue {
  std::string name;
  Value value;
};

/// The arguments of one call, arrays and numbers, read and checked.
struct Call {
  struct Argument {
    std::string name;
    std::optional<Array> array;
    double number = 0;
  };
  std::string function;
  std::vector<Argument> arguments;
  DeviceName device;
  void* stream = nullptr;
  nb::object first;  ///< the first array
  std::string key;   ///< equal for calls that one program can serve

  /// Error(Usage) or TypeError names the argument: neither array nor number, another device than the first array's, an
  /// unsupported element type. At least one argument must be an array.
  static Call read(std::string function, const std::vector<std::string>& names, const nb::tuple& given);
};

class Program {
 public:
  /// Plans `results` for calls like `call`. Arguments that no result needs are left out. Error(Usage) names what cannot
  /// be run.
  Program(const std::string& name, std::vector<NamedValue> results, const Call& call);

  /// Reads the call's arrays and writes `outputs`, all in place, on the call's stream. First checks types, shapes,
  /// devices, contiguity and aliasing of outputs. On a GPU it returns once the work is queued.
  void run(const Call& call, const std::vector<Array>& outputs);

  /// Waits for the runs queued so far.
  void wait();

  std::string explain();
  std::string plan_text() const { return print_plan(plan_); }
  int launches() const { return counts_of(plan_).total; }

 private:
  void check_output(const Array& a, const Buffer& b) const;
  void check(const Call& call, const std::vector<Array>& outputs) const;
  void set_numbers(const Call& call);

  std::vector<NamedValue> results_;
  std::vector<bool> used_;  // by argument
  DeviceName name_;
  std::shared_ptr<Backend> device_;
  Plan plan_;
  std::mutex busy_;  // guards the following; never held together with the GIL
  std::optional<Executable> executable_;
  std::vector<std::optional<uint64_t>> set_;  // bits of the numbers set on the device, by argument
};

}  // namespace tenon::python
