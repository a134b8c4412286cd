#include "apps/python/programs.h"

#include <algorithm>
#include <bit>
#include <map>

#include "apps/python/gil.h"
#include "tenon/core/error.h"
#include "tenon/explain/explanation.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon::python {
namespace {

Plan plan_of(const std::string& name, const std::vector<NamedValue>& results, const Target& target,
             bool fusion = true) {
  PlanOptions options;
  options.name = name;
  options.hoist = false;
  options.outside = true;
  options.fusion = fusion;
  options.target = target;
  std::vector<Result> values;
  for (const NamedValue& r : results) values.push_back({r.name, r.value.expr});
  return make_plan(values, options);
}

// Everything is computed in f32, so f64 results would be wrong in precision.
void check_argument(const Array& a, const std::string& name) {
  TENON_CHECK(Usage, a.dtype != DType::F64, name)
      << "expected f32, bf16, f16, e4m3, integers or bool, got " << a.str() << "; arithmetic is f32: convert it first";
  const int64_t size = size_of(a.dtype);
  TENON_CHECK(Usage, reinterpret_cast<uintptr_t>(a.data) % static_cast<uintptr_t>(size) == 0, name)
      << a.str() << " starts at an address that is not a multiple of its elements' " << size << " bytes";
}

void add_to_key(std::string& key, const Array& a) {
  const auto add = [&key](int64_t n) { key.append(reinterpret_cast<const char*>(&n), sizeof n); };
  key += '@';
  key += static_cast<char>(a.dtype);
  key += static_cast<char>(a.shape.rank());
  key += static_cast<char>((a.data - static_cast<std::byte*>(leaf_address(a))));
  const bool dense = a.contiguous();
  key += dense ? 'd' : 's';
  for (int i = 0; i < a.shape.rank(); ++i) {
    add(a.shape[i]);
    if (!dense) add(a.strides[static_cast<size_t>(i)]);
  }
}

// The results with the call's arrays as they are in memory in place of the dense inputs that were traced.
std::vector<NamedValue> in_memory(std::vector<NamedValue> results, const Call& call) {
  const auto memory = std::make_shared<Graph>();
  std::map<std::string, Expr> arrays;
  for (const Call::Argument& a : call.arguments)
    if (a.array) arrays[a.name] = input_like(*memory, a.name, *a.array);
  const Replace replace = [&](const Expr& node, std::span<const Expr>) {
    const auto it = is_memory_leaf(node) ? arrays.find(node->attrs.text) : arrays.end();
    return it == arrays.end() ? Expr() : it->second;
  };
  Memo memo;
  for (NamedValue& r : results) r.value = {rebuild(*memory, r.value.expr, replace, memo), memory};
  return results;
}

// Whether the plan reads this argument. A temporary may have the name of one that is not read.
bool is_read(const Plan& plan, const std::string& name) {
  return std::any_of(plan.buffers.begin(), plan.buffers.end(),
                     [&](const Buffer& b) { return b.role == BufferRole::Input && b.name == name; });
}

}  // namespace

Call Call::read(std::string function, const std::vector<std::string>& names, const nb::tuple& given) {
  Call call;
  call.function = std::move(function);
  TENON_CHECK(Usage, names.size() == given.size(), call.function)
      << "expected " << names.size() << " arguments, got " << given.size();
  for (size_t i = 0; i < names.size(); ++i) {
    const nb::handle object = given[i];
    Argument argument{names[i], {}, 0};
    if (PyFloat_Check(object.ptr()) || (PyLong_Check(object.ptr()) && !PyBool_Check(object.ptr()))) {
      argument.number = PyFloat_Check(object.ptr()) ? PyFloat_AsDouble(object.ptr()) : PyLong_AsDouble(object.ptr());
      if (PyErr_Occurred()) {
        PyErr_Clear();
        throw Error(ErrorKind::Usage, names[i], "expected a number that a float can hold, got a larger integer");
      }
      call.key += '#';
    } else {
      if (PyBool_Check(object.ptr()))
        throw nb::type_error((names[i] + ": expected an array or a number, got bool").c_str());
      argument.array = read_array(object, names[i]);
      check_argument(*argument.array, names[i]);
      if (!call.first) {
        call.first = nb::borrow(object);
        call.device = argument.array->device;
      }
      TENON_CHECK(Usage, argument.array->device == call.device, names[i])
          << "expected an array on " << call.device.str() << " like the first one, got " << argument.array->str();
      add_to_key(call.key, *argument.array);
    }
    call.arguments.push_back(std::move(argument));
  }
  TENON_CHECK(Usage, call.first.is_valid(), call.function) << "expected at least one array among the arguments";
  call.stream = current_stream(call.first, call.device);
  call.key += call.device.str() + std::to_string(reinterpret_cast<uintptr_t>(call.stream));
  return call;
}

Program::Program(const std::string& name, std::vector<NamedValue> results, const Call& call)
    : results_(in_memory(std::move(results), call)),
      name_(call.device),
      device_(open_device(call.device)),
      plan_(plan_of(name, results_, device_->target())) {
  for (const Call::Argument& a : call.arguments) used_.push_back(is_read(plan_, a.name));
}

void Program::check_output(const Array& a, const Buffer& b) const {
  TENON_CHECK(Usage, a.dtype == b.dtype && a.shape == b.shape && a.device == name_, b.name)
      << "expected " << name_of(b.dtype) << b.shape.str() << " on " << name_.str() << " to write to, got " << a.str();
  TENON_CHECK(Usage, a.contiguous(), b.name) << "expected a contiguous array to write to";
  TENON_CHECK(Usage, !a.read_only, b.name) << "the array is read-only";
  const uintptr_t alignment = name_.backend == "cuda" ? 16 : static_cast<uintptr_t>(size_of(a.dtype));
  TENON_CHECK(Usage, reinterpret_cast<uintptr_t>(a.data) % alignment == 0, b.name)
      << "expected an address that is a multiple of " << alignment << " bytes";
}

void Program::check(const Call& call, const std::vector<Array>& outputs) const {
  TENON_CHECK(Internal, call.arguments.size() == used_.size(), plan_.name)
      << "called with " << call.arguments.size() << " arguments";
  TENON_CHECK(Usage, outputs.size() == results_.size(), plan_.name)
      << "expected " << results_.size() << " arrays to write to, got " << outputs.size();
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_output(outputs[i], plan_.buffer(results_[i].name));
    for (const Call::Argument& a : call.arguments)
      if (a.array) check_apart(outputs[i], results_[i].name, *a.array, a.name);
    for (size_t j = 0; j < i; ++j) check_apart(outputs[i], results_[i].name, outputs[j], results_[j].name);
  }
}

void Program::set_numbers(const Call& call) {
  for (size_t i = 0; i < used_.size(); ++i) {
    const Call::Argument& a = call.arguments[i];
    const auto bits = std::bit_cast<uint64_t>(a.number);  // -0 is not 0
    if (a.array || !used_[i] || bits == set_[i]) continue;
    executable_->set_scalar(a.name, a.number);
    set_[i] = bits;
  }
}

void Program::run(const Call& call, const std::vector<Array>& outputs) {
  check(call, outputs);
  std::map<std::string, void*> memory;
  for (size_t i = 0; i < used_.size(); ++i)
    if (const Call::Argument& a = call.arguments[i]; a.array && used_[i]) memory[a.name] = leaf_address(*a.array);
  for (size_t i = 0; i < outputs.size(); ++i) memory[results_[i].name] = outputs[i].data;
  const auto empty = [](const Array& a) { return a.shape.numel() == 0; };
  if (std::all_of(outputs.begin(), outputs.end(), empty)) return;
  const GilReleased released;
  const std::lock_guard lock(busy_);
  if (executable_) {
    executable_->bind(memory);
  } else {  // a program is bound to one stream
    executable_.emplace(plan_, device_, HostWeights(), memory, device_->borrow_stream(call.stream));
    set_.assign(used_.size(), std::nullopt);
  }
  set_numbers(call);
  executable_->start();
}

void Program::wait() {
  const GilReleased released;
  const std::lock_guard lock(busy_);
  if (executable_) executable_->wait();
}

std::string Program::explain() {
  Measurements measured;
  {
    const GilReleased released;
    const std::lock_guard lock(busy_);
    if (executable_) {
      const std::vector<std::string> how = executable_->describe();
      for (size_t i = 0; i < how.size(); ++i) measured[plan_.phases.back().launches[i].name].how = how[i];
    }
  }
  const PlanKernels made(plan_, WeightStore(device_, nullptr));
  Explanation e = tenon::explain(plan_, made.memory, bytes_moved(plan_of(plan_.name, results_, {}, false)), measured,
                                 kernels_of(made));
  for (ExplainedLaunch& l : e.launches) l.seconds.reset();
  e.model = "tenon.fuse";
  e.device = device_->describe();
  return explanation_text(e);
}

void bind_programs(nb::module_& m) {
  nb::class_<NamedValue>(m, "NamedValue").def("__init__", [](NamedValue* at, std::string name, Value value) {
    new (at) NamedValue{std::move(name), std::move(value)};
  });
  nb::class_<Call>(m, "Call")
      .def(nb::new_(&Call::read))
      .def_prop_ro("names",
                   [](const Call& c) {
                     std::vector<std::string> names;
                     for (const Call::Argument& a : c.arguments) names.push_back(a.name);
                     return names;
                   })
      .def("is_scalar", [](const Call& c, size_t i) { return !c.arguments.at(i).array; })
      .def("dtype", [](const Call& c, size_t i) { return std::string(name_of(c.arguments.at(i).array.value().dtype)); })
      .def("input",
           [](const Call& c, const std::shared_ptr<Graph>& g, size_t i) {
             const Call::Argument& a = c.arguments.at(i);
             Graph memory;
             input_like(memory, a.name, a.array.value());  // refuses layouts before anything is traced
             return Value{input(*g, a.name, a.array->dtype, a.array->shape), g};
           })
      .def_prop_ro("first", [](const Call& c) { return c.first; })
      .def_prop_ro("key", [](const Call& c) { return nb::bytes(c.key.data(), c.key.size()); });
  nb::class_<Program>(m, "Program")
      .def("__init__", [](Program* at, const std::string& name, std::vector<NamedValue> results,
                          const Call& call) { new (at) Program(name, std::move(results), call); })
      .def("run",
           [](Program& p, const Call& call, const nb::list& outputs) {
             std::vector<Array> arrays;
             for (const nb::handle o : outputs) arrays.push_back(read_array(o, "out"));
             p.run(call, arrays);
           })
      .def("wait", &Program::wait)
      .def("explain", &Program::explain)
      .def("plan", &Program::plan_text)
      .def_prop_ro("launches", &Program::launches);
}

}  // namespace tenon::python
