// Lion over arrays of other libraries: everything is checked before the first element is written. A list that was
// checked before, as an optimizer passes at every step, is only compared with the record of that check.
#include <algorithm>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <tuple>

#include "apps/python/array.h"
#include "apps/python/gil.h"
#include "tenon/core/error.h"
#include "tenon/optim/lion.h"

namespace tenon::python {
namespace {

constexpr const char* kRoles[] = {"param", "exp_avg", "grad", "master"};
constexpr size_t kRoleCount = 4, kParam = 0, kExpAvg = 1, kGrad = 2, kMaster = 3;

// Properties that decide whether an array is valid, and its address, in a form that is quick to compare.
struct Sight {
  const std::byte* data = nullptr;
  int64_t count = 0;
  uint64_t form = 0;  // hash of shape and strides
  nb::dlpack::dtype dtype{};
  nb::dlpack::device device{};
  bool operator==(const Sight& o) const {
    return data == o.data && count == o.count && form == o.form && dtype == o.dtype &&
           device.device_type == o.device.device_type && device.device_id == o.device.device_id;
  }
};

Sight look(const nb::dlpack::dltensor& t) {
  Sight s{static_cast<const std::byte*>(t.data) + t.byte_offset, 1, static_cast<uint64_t>(t.ndim), t.dtype, t.device};
  const auto mix = [&s](int64_t n) { s.form = (s.form ^ static_cast<uint64_t>(n)) * 0x9e3779b97f4a7c15u; };
  for (int32_t i = 0; i < t.ndim; ++i) {
    s.count *= t.shape[i];
    mix(t.shape[i]);
    mix(t.strides ? t.strides[i] : 0);
    s.form ^= s.form >> 29;
  }
  return s;
}

// The arrays of one call by role and tensor. `held`: arrays borrowed through DLPack until the call ends.
struct Arrays {
  size_t tensors = 0;
  std::array<nb::object, kRoleCount> lists;
  std::vector<Sight> sights;  // [tensor][role]; of masters that there are not, without a type
  std::deque<Array> held;
  const Sight& sight(size_t role, size_t i) const { return sights[i * kRoleCount + role]; }
  bool has(size_t role, size_t i) const { return sight(role, i).dtype.bits != 0; }
  /// None where the call has no such list.
  nb::object at(size_t role, size_t i) const {
    if (lists[role].is_none()) return nb::none();
    return nb::steal(PySequence_GetItem(lists[role].ptr(), static_cast<Py_ssize_t>(i)));
  }
  std::string name(size_t role, size_t i) const {
    return std::string(kRoles[role]) + (tensors == 1 ? "" : "[" + std::to_string(i) + "]");
  }
  /// Reads the array again, with everything that messages show.
  Array array(size_t role, size_t i) const {
    return read_array(at(role, i), name(role, i), role == kMaster ? "f32" : "f32, bf16 or f16");
  }
};

// `some_masters`: the list of masters has None for parameters without one.
Arrays look_at(const std::array<nb::object, kRoleCount>& lists, bool some_masters = false) {
  Arrays a;
  a.lists = lists;
  a.tensors = nb::len(lists[kParam]);
  for (size_t role = 0; role < kRoleCount; ++role) {
    if (role == kMaster && lists[role].is_none()) continue;
    TENON_CHECK(Usage, nb::len(lists[role]) == a.tensors, std::string(kRoles[role]) + "s")
        << "expected " << a.tensors << " arrays, one for each parameter, got " << nb::len(lists[role]);
  }
  some_masters |= lists[kMaster].is_none();
  a.sights.reserve(a.tensors * kRoleCount);
  for (size_t i = 0; i < a.tensors; ++i)
    for (size_t role = 0; role < kRoleCount; ++role) {
      const nb::object object = a.at(role, i);
      if (role == kMaster && some_masters && object.is_none()) {
        a.sights.emplace_back();
        continue;
      }
      nb::dlpack::dltensor t;
      if (read_quickly(object, t)) {
        a.sights.push_back(look(t));
        continue;
      }
      Array& lent = a.held.emplace_back(a.array(role, i));
      TENON_CHECK(Usage, role == kGrad || !lent.read_only, a.name(role, i)) << "the array is read-only";
      Shape shape = lent.shape;
      t = {lent.data, dlpack_device(lent.device), shape.rank(), dlpack_type(lent.dtype), &shape[0], lent.strides.data(),
           0};
      a.sights.push_back(look(t));
    }
  return a;
}

// Whether the elements are contiguous in some order of the axes.
bool dense(const Array& a) {
  std::vector<int> axes;
  for (int i = 0; i < a.shape.rank(); ++i)
    if (a.shape[i] != 1) axes.push_back(i);
  const auto stride = [&a](int axis) { return a.strides[static_cast<size_t>(axis)]; };
  std::sort(axes.begin(), axes.end(), [&](int x, int y) { return stride(x) < stride(y); });
  int64_t next = 1;
  for (const int axis : axes) {
    if (stride(axis) != next) return false;
    next *= a.shape[axis];
  }
  return true;
}

bool same_layout(const Array& a, const Array& b) {
  for (int i = 0; i < a.shape.rank(); ++i)
    if (a.shape[i] != 1 && a.strides[static_cast<size_t>(i)] != b.strides[static_cast<size_t>(i)]) return false;
  return true;
}

void check_tensor(const Arrays& all, size_t i, const nb::object& is_negated) {
  const Array param = all.array(kParam, i);
  const std::string name = all.name(kParam, i);
  for (size_t role = 0; role < kRoleCount; ++role) {
    if (!all.has(role, i)) continue;
    const Array a = role == kParam ? param : all.array(role, i);
    const std::string where = all.name(role, i);
    const bool known = a.dtype == DType::F32 || a.dtype == DType::BF16 || a.dtype == DType::F16;
    TENON_CHECK(Usage, known && (role != kMaster || a.dtype == DType::F32), where)
        << "expected " << (role == kMaster ? "f32" : "f32, bf16 or f16") << ", got " << a.str();
    TENON_CHECK(Usage, role != kMaster || param.dtype != DType::F32, where)
        << "expected none: " << name << " is f32 and takes the step itself";
    TENON_CHECK(Usage, !nb::cast<bool>(is_negated(all.at(role, i))), where)
        << "expected a tensor whose memory holds its numbers, got one that is negated lazily (see resolve_neg)";
    TENON_CHECK(Usage, a.shape == param.shape, where)
        << "expected the shape of " << name << ", " << param.shape.str() << ", got " << a.shape.str();
    TENON_CHECK(Usage, a.device == param.device, where)
        << "expected " << param.device.str() << " like " << name << ", got " << a.device.str();
    const bool empty = a.shape.numel() == 0;
    TENON_CHECK(Usage, empty || dense(a), where)
        << "expected an array without gaps between its elements, got " << a.str();
    TENON_CHECK(Usage, empty || same_layout(a, param), where) << "expected the strides of " << name;
    const auto size = static_cast<uintptr_t>(size_of(a.dtype));
    TENON_CHECK(Usage, reinterpret_cast<uintptr_t>(a.data) % size == 0, where)
        << "starts at an address that is not a multiple of " << size << " bytes";
  }
}

// Checks that no array that is written shares memory with any other array of the call.
void check_apart(const Arrays& all) {
  struct Span {
    const std::byte *begin, *end;
    size_t role, tensor;
  };
  std::vector<Span> spans;
  for (size_t i = 0; i < all.tensors; ++i)
    for (size_t role = 0; role < kRoleCount; ++role) {
      const Sight& s = all.sight(role, i);
      const int64_t bytes = s.count * (s.dtype.bits / 8);
      if (bytes) spans.push_back({s.data, s.data + bytes, role, i});
    }
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  const Span *written = nullptr, *any = nullptr;  // those reaching furthest so far
  for (const Span& s : spans) {
    const Span* before = s.role == kGrad ? written : any;
    TENON_CHECK(Usage, !before || before->end <= s.begin, all.name(s.role, s.tensor))
        << "shares memory with " << all.name(before->role, before->tensor) << "; expected separate arrays";
    if (!any || s.end > any->end) any = &s;
    if (s.role != kGrad && (!written || s.end > written->end)) written = &s;
  }
}

// Consecutive tensors of a call that step with the same options.
struct Part {
  size_t count = 0;
  bool together = true;  // in one launch for each device and set of types, rather than one for each tensor
  LionOptions options;
};

// Tensors of a part that have the same types and device.
struct Group {
  size_t part;
  DeviceName device;
  LionTypes types;
  std::vector<LionTensor> tensors;
  std::vector<size_t> index;  // in the call's lists
};

struct Checked {
  std::vector<Sight> sights;
  std::vector<size_t> counts;  // of the parts
  std::vector<Group> groups;
};
using Known = std::list<std::shared_ptr<const Checked>>;  // the last first; guarded by the GIL

DType type_at(const Arrays& all, size_t i, size_t role) { return type_of(all.sight(role, i).dtype); }

std::vector<Group> groups_of(const Arrays& all, const std::vector<size_t>& counts) {
  std::vector<Group> groups;
  for (size_t part = 0, i = 0, end = 0; part < counts.size(); ++part)
    for (end += counts[part]; i < end; ++i) {
      const LionTypes types{type_at(all, i, kParam), type_at(all, i, kExpAvg), type_at(all, i, kGrad),
                            all.has(kMaster, i)};
      const DeviceName device = all.array(kParam, i).device;
      auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
        return g.part == part && g.device == device && g.types == types;
      });
      if (group == groups.end()) group = groups.insert(groups.end(), {part, device, types, {}, {}});
      const auto memory = [&](size_t role) { return const_cast<std::byte*>(all.sight(role, i).data); };
      group->tensors.push_back(
          {memory(kParam), memory(kExpAvg), memory(kGrad), memory(kMaster), all.sight(kParam, i).count});
      group->index.push_back(i);
    }
  return groups;
}

// Shared, because another thread may push the record out of `known` while this one steps.
std::shared_ptr<const Checked> check(const Arrays& all, std::vector<size_t> counts, Known& known) {
  constexpr size_t kKept = 8;
  for (auto it = known.begin(); it != known.end(); ++it)
    if ((*it)->counts == counts && (*it)->sights == all.sights) {
      known.splice(known.begin(), known, it);
      return known.front();
    }
  TENON_CHECK(Usage, std::accumulate(counts.begin(), counts.end(), size_t{0}) == all.tensors, "parts")
      << "expected " << all.tensors << " tensors in all";
  const nb::object is_negated = nb::module_::import_("tenon._arrays").attr("is_negated");
  for (size_t i = 0; i < all.tensors; ++i) check_tensor(all, i, is_negated);
  check_apart(all);
  std::vector<Group> groups = groups_of(all, counts);
  auto checked = std::make_shared<const Checked>(Checked{all.sights, std::move(counts), std::move(groups)});
  known.push_front(checked);
  if (known.size() > kKept) known.pop_back();
  return checked;
}

// For one device and set of types; used by one thread at a time.
struct SharedLion {
  std::shared_ptr<Backend> device;
  LionTypes types;
  Lion lion;
  std::mutex busy;  // never held together with the GIL
  SharedLion(std::shared_ptr<Backend> on, const LionTypes& of) : device(std::move(on)), types(of), lion(device, of) {}
};

// Kept for the lifetime of the process. Guarded by the GIL.
SharedLion& lion_on(const std::shared_ptr<Backend>& device, const LionTypes& types) {
  static auto& made = *new std::list<SharedLion>;
  for (SharedLion& known : made)
    if (known.device == device && known.types == types) return known;
  return made.emplace_back(device, types);
}

NonFinite policy_of(const std::string& name) {
  if (name == "propagate") return NonFinite::Propagate;
  if (name == "skip") return NonFinite::Skip;
  if (name == "raise") return NonFinite::Raise;
  throw Error(ErrorKind::Usage, "non_finite", "expected propagate, skip or raise, got '" + name + "'");
}

// A group's Lion, and the stream that its step runs on.
class Turn {
 public:
  Turn(const Group& group, const Arrays& all)
      : lion_(lion_on(open_device(group.device), group.types)),
        stream_(current_stream(all.at(kParam, group.index[0]), group.device)) {}
  template <class Work>
  auto take(Work work) {
    const GilReleased released;
    const std::lock_guard lock(lion_.busy);
    return work(lion_.lion, *lion_.device->borrow_stream(stream_));
  }

 private:
  SharedLion& lion_;
  void* stream_;
};

std::vector<Turn> turns_of(const std::vector<Group>& groups, const Arrays& all) {
  std::vector<Turn> turns;
  for (const Group& group : groups) turns.emplace_back(group, all);
  return turns;
}

void refuse_non_finite(const Group& group, Turn& turn, const Arrays& all) {
  const int64_t found = turn.take([&](Lion& lion, Stream& on) { return lion.find_non_finite(on, group.tensors); });
  if (found >= 0)
    throw Error(ErrorKind::Numeric, all.name(kGrad, group.index[static_cast<size_t>(found)]),
                "is not finite; nothing was written");
}

// Whatever may fail comes before the first step.
void run_parts(const Arrays& all, std::vector<Part> parts) {
  static auto& known = *new Known;
  std::vector<size_t> counts;
  for (const Part& part : parts) counts.push_back(part.count);
  const auto checked = check(all, std::move(counts), known);
  const std::vector<Group>& groups = checked->groups;
  std::vector<Turn> turns = turns_of(groups, all);
  for (size_t i = 0; i < turns.size(); ++i)
    if (parts[groups[i].part].options.non_finite == NonFinite::Raise) refuse_non_finite(groups[i], turns[i], all);
  for (Part& part : parts)
    if (part.options.non_finite == NonFinite::Raise) part.options.non_finite = NonFinite::Propagate;
  for (size_t i = 0; i < turns.size(); ++i)
    turns[i].take([&](Lion& lion, Stream& on) {
      const Part& part = parts[groups[i].part];
      const std::span<const LionTensor> tensors = groups[i].tensors;
      const size_t together = part.together ? tensors.size() : 1;
      for (size_t at = 0; at < tensors.size(); at += together)
        lion.step(on, tensors.subspan(at, together), part.options);
    });
}

void check_only(nb::object params, nb::object exp_avgs, nb::object grads, nb::object masters) {
  static auto& known = *new Known;  // its own: the many short lists of the steps would push these out
  const Arrays all = look_at({std::move(params), std::move(exp_avgs), std::move(grads), std::move(masters)}, true);
  const auto checked = check(all, {all.tensors}, known);
  turns_of(checked->groups, all);
}

// (lr, beta1, beta2, weight_decay, maximize, non_finite)
using GivenOptions = std::tuple<double, double, double, double, bool, std::string>;

LionOptions options_of(const GivenOptions& given) {
  const auto& [lr, beta1, beta2, weight_decay, maximize, non_finite] = given;
  return {lr, beta1, beta2, weight_decay, maximize, policy_of(non_finite)};
}

void step(nb::object params, nb::object exp_avgs, nb::object grads, nb::object masters, const GivenOptions& given) {
  const LionOptions options = options_of(given);
  const Arrays all = look_at({std::move(params), std::move(exp_avgs), std::move(grads), std::move(masters)});
  run_parts(all, {{all.tensors, true, options}});
}

// (count, together, options)
using GivenPart = std::tuple<size_t, bool, GivenOptions>;

void step_parts(nb::object params, nb::object exp_avgs, nb::object grads, nb::object masters,
                const std::vector<GivenPart>& given) {
  std::vector<Part> parts;
  for (const auto& [count, together, options] : given) parts.push_back({count, together, options_of(options)});
  const Arrays all = look_at({std::move(params), std::move(exp_avgs), std::move(grads), std::move(masters)}, true);
  run_parts(all, std::move(parts));
}

std::string explain(const std::string& param, const std::string& exp_avg, const std::string& grad, bool master,
                    const std::string& backend, int ordinal) {
  SharedLion& shared =
      lion_on(open_device({backend, ordinal}), {parse_dtype(param), parse_dtype(exp_avg), parse_dtype(grad), master});
  const GilReleased released;
  const std::lock_guard lock(shared.busy);
  return shared.lion.explain();
}

}  // namespace

void bind_lion(nb::module_& m) {
  m.def("lion_step", &step, nb::arg("params"), nb::arg("exp_avgs"), nb::arg("grads"), nb::arg("masters").none(),
        nb::arg("options"), "Options: (lr, beta1, beta2, weight_decay, maximize, non_finite).");
  m.def("lion_steps", &step_parts, nb::arg("params"), nb::arg("exp_avgs"), nb::arg("grads"), nb::arg("masters").none(),
        nb::arg("parts"),
        "lion_step for consecutive parts of the lists, each (count, together, options): everything is checked before "
        "the first element is written. masters may have None.");
  m.def("check_lion", &check_only, nb::arg("params"), nb::arg("exp_avgs"), nb::arg("grads"), nb::arg("masters").none(),
        "All checks of lion_step, and no step, for tensors that several calls will step: masters may have None.");
  m.def("explain_lion", &explain, nb::arg("param") = "f32", nb::arg("exp_avg") = "f32", nb::arg("grad") = "f32",
        nb::arg("master") = false, nb::arg("backend") = "cpu", nb::arg("ordinal") = 0);
}

}  // namespace tenon::python
