#include "apps/python/array.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "tenon/core/error.h"

namespace tenon::python {
namespace {

constexpr int kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;  // DLDeviceType

// The part of DLPack's C exchange table (dlpack.h 1.2) that is used here.
struct ExchangeTable {
  uint32_t major, minor;
  const ExchangeTable* previous;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object, nb::dlpack::dltensor* out);
  int (*current_stream)(int device_type, int32_t device_id, void** stream);
};

const ExchangeTable* find_table(PyTypeObject* type) {
  const nb::object capsule =
      nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  if (!capsule.is_valid()) {
    PyErr_Clear();
    return nullptr;
  }
  const void* found = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
  if (!found) PyErr_Clear();
  const auto* table = static_cast<const ExchangeTable*>(found);
  return table && table->major == 1 && table->tensor_from_object && table->current_stream ? table : nullptr;
}

// The table by type. Types are kept alive, so an address always means the same type. Guarded by the GIL.
const ExchangeTable* table_of(nb::handle object) {
  static auto& known = *new std::unordered_map<PyTypeObject*, const ExchangeTable*>;
  PyTypeObject* type = Py_TYPE(object.ptr());
  const auto it = known.find(type);
  if (it != known.end()) return it->second;
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  return known[type] = find_table(type);
}

struct TypePair {
  DType dtype;
  nb::dlpack::dtype_code code;
  uint8_t bits;
};
constexpr TypePair kTypes[] = {
    {DType::F32, nb::dlpack::dtype_code::Float, 32},
    {DType::F64, nb::dlpack::dtype_code::Float, 64},
    {DType::F16, nb::dlpack::dtype_code::Float, 16},
    {DType::BF16, nb::dlpack::dtype_code::Bfloat, 16},
    {DType::E4M3, nb::dlpack::dtype_code::Float8_E4M3FN, 8},
    {DType::I64, nb::dlpack::dtype_code::Int, 64},
    {DType::I32, nb::dlpack::dtype_code::Int, 32},
    {DType::I16, nb::dlpack::dtype_code::Int, 16},
    {DType::I8, nb::dlpack::dtype_code::Int, 8},
    {DType::U8, nb::dlpack::dtype_code::UInt, 8},
    {DType::Bool, nb::dlpack::dtype_code::Bool, 8},
};

std::optional<DType> dtype_of(nb::dlpack::dtype t) {
  for (const TypePair& known : kTypes)
    if (t.lanes == 1 && t.code == static_cast<uint8_t>(known.code) && t.bits == known.bits) return known.dtype;
  return {};
}
std::string text_of(nb::dlpack::dtype t) {
  static constexpr const char* names[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  return (t.code < std::size(names) ? std::string(names[t.code]) : "type code " + std::to_string(t.code) + ", bits ") +
         std::to_string(t.bits);
}

DeviceName device_of(nb::dlpack::device d, const std::string& name) {
  if (d.device_type == kCpu || d.device_type == kCudaHost) return {"cpu", 0};
  if (d.device_type == kCuda || d.device_type == kCudaManaged) return {"cuda", d.device_id};
  throw Error(ErrorKind::Usage, name,
              "expected an array on the CPU or a CUDA device, got DLPack device type " + std::to_string(d.device_type));
}

Array from_tensor(const nb::dlpack::dltensor& t, const std::string& name, const char* types) {
  Array a;
  const std::optional<DType> dtype = dtype_of(t.dtype);
  TENON_CHECK(Usage, dtype.has_value(), name) << "expected " << types << ", got " << text_of(t.dtype);
  TENON_CHECK(Usage, t.ndim <= kMaxRank, name) << "expected at most " << kMaxRank << " axes, got " << t.ndim;
  a.dtype = *dtype;
  a.device = device_of(t.device, name);
  a.shape = Shape(std::span<const int64_t>(t.shape, static_cast<size_t>(t.ndim)));
  a.strides = a.shape.strides();
  if (t.strides) std::copy_n(t.strides, t.ndim, a.strides.begin());
  TENON_CHECK(Usage, t.data || a.shape.numel() == 0, name)
      << "expected an array with memory, got " << a.str() << " without, such as a tensor that stands for others";
  a.data = static_cast<std::byte*>(t.data) + t.byte_offset;
  return a;
}

// The library's own reason for not lending an array, without the rest of its message (stack frames).
[[noreturn]] void refuse_loan(const std::string& name) {
  const nb::python_error raised;
  const std::string why = nb::cast<std::string>(nb::str(raised.value()));
  throw Error(ErrorKind::Usage, name, "cannot be read through DLPack: " + why.substr(0, why.find('\n')));
}

template <class Imported>
Array from_import(Imported imported, const std::string& name, const char* types) {
  std::vector<int64_t> shape(imported.ndim()), strides(imported.ndim());
  for (size_t i = 0; i < imported.ndim(); ++i) {
    shape[i] = static_cast<int64_t>(imported.shape(i));
    strides[i] = imported.stride(i);
  }
  nb::dlpack::dltensor t;
  t.data = const_cast<void*>(static_cast<const void*>(imported.data()));
  t.device = {imported.device_type(), imported.device_id()};
  t.ndim = static_cast<int32_t>(imported.ndim());
  t.dtype = imported.dtype();
  t.shape = shape.data();
  t.strides = strides.data();
  Array a = from_tensor(t, name, types);
  a.owner = std::make_shared<Imported>(std::move(imported));
  return a;
}

// Says what the object is, and for an array the library's own reason for not lending it.
[[noreturn]] void refuse_import(nb::handle object, const std::string& name) {
  std::string found = nb::inst_name(object).c_str();
  if (nb::hasattr(object, "dtype")) found += std::string(" of ") + nb::str(nb::object(object.attr("dtype"))).c_str();
  try {
    if (nb::hasattr(object, "__dlpack__")) object.attr("__dlpack__")();
  } catch (const nb::python_error& refused) {
    throw nb::type_error((name + ": expected an array that can be read through DLPack, got " + found + " (" +
                          nb::str(refused.value()).c_str() + "); convert it first, as with astype")
                             .c_str());
  }
  throw nb::type_error((name + ": expected an array that supports DLPack (NumPy, PyTorch, CuPy, JAX; tensors that " +
                        "need gradients must be detached), got " + found)
                           .c_str());
}

// Imports through __dlpack__ (or the buffer protocol). Read-only arrays refuse to be imported for writing.
Array import_array(nb::handle object, const std::string& name, const char* types) {
  TENON_CHECK(Usage, !nb::hasattr(object, "mask") || !nb::hasattr(object, "filled"), name)
      << "expected an array without a mask, got a " << nb::inst_name(object).c_str() << "; fill it first (filled)";
  if (nb::ndarray<> writable; nb::try_cast(object, writable)) return from_import(std::move(writable), name, types);
  PyErr_Clear();
  if (nb::ndarray<nb::ro> readable; nb::try_cast(object, readable)) {
    Array a = from_import(std::move(readable), name, types);
    a.read_only = true;
    return a;
  }
  PyErr_Clear();
  refuse_import(object, name);
}

}  // namespace

bool Array::contiguous() const {
  if (shape.numel() == 0) return true;
  const Coord dense = shape.strides();
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != 1 && strides[static_cast<size_t>(i)] != dense[static_cast<size_t>(i)]) return false;
  return true;
}

int64_t Array::span_bytes() const {
  if (shape.numel() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < shape.rank(); ++i) last += (shape[i] - 1) * strides[static_cast<size_t>(i)];
  return (last + 1) * size_of(dtype);
}

std::string Array::str() const { return std::string(name_of(dtype)) + shape.str() + " on " + device.str(); }

nb::dlpack::dtype dlpack_type(DType type) {
  for (const TypePair& t : kTypes)
    if (t.dtype == type) return {static_cast<uint8_t>(t.code), t.bits, 1};
  throw Error(ErrorKind::Internal, std::string(name_of(type)), "has no DLPack type");
}

nb::dlpack::device dlpack_device(const DeviceName& device) {
  return {device.backend == "cuda" ? kCuda : kCpu, device.ordinal};
}

DType type_of(nb::dlpack::dtype type) {
  if (const std::optional<DType> known = dtype_of(type)) return *known;
  throw Error(ErrorKind::Usage, "array", "expected a supported element type, got " + text_of(type));
}

bool read_quickly(nb::handle object, nb::dlpack::dltensor& out) {
  const ExchangeTable* table = table_of(object);
  if (table && table->tensor_from_object(object.ptr(), &out) == 0) return true;
  PyErr_Clear();
  return false;
}

bool is_array(nb::handle object) {
  return table_of(object) || nb::hasattr(object, "__dlpack__") ||
         (PyObject_CheckBuffer(object.ptr()) && !PyBytes_Check(object.ptr()) && !PyByteArray_Check(object.ptr()));
}

Array read_array(nb::handle object, const std::string& name, const char* types) {
  const ExchangeTable* table = table_of(object);
  if (!table) return import_array(object, name, types);
  nb::dlpack::dltensor t;
  if (table->tensor_from_object(object.ptr(), &t) != 0) refuse_loan(name);
  return from_tensor(t, name, types);
}

void* current_stream(nb::handle object, const DeviceName& device) {
  if (device.backend != "cuda") return nullptr;
  static void* const legacy = reinterpret_cast<void*>(uintptr_t{1});  // CU_STREAM_LEGACY
  void* stream = nullptr;
  if (const ExchangeTable* table = table_of(object)) {
    if (table->current_stream(kCuda, device.ordinal, &stream) != 0) throw nb::python_error();
  } else {
    stream = reinterpret_cast<void*>(
        nb::cast<uintptr_t>(nb::module_::import_("tenon._arrays").attr("current_stream")(object, device.ordinal)));
  }
  return stream ? stream : legacy;
}

nb::object new_array(const std::vector<int64_t>& shape, const std::string& dtype, const Array& like) {
  const DType type = parse_dtype(dtype);
  const Shape dims{std::span<const int64_t>(shape)};
  const std::shared_ptr<void> memory = open_device(like.device)->allocate(dims.numel() * size_of(type));
  auto* owned = new std::shared_ptr<void>(memory);
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::shared_ptr<void>*>(p); });
  const std::vector<size_t> extents(shape.begin(), shape.end());
  // An object with __dlpack__ and __dlpack_device__: a bare capsule is read once only, and JAX takes none.
  return nb::cast(nb::ndarray<nb::array_api>(memory.get(), extents.size(), extents.data(), owner, nullptr,
                                             dlpack_type(type), dlpack_device(like.device).device_type,
                                             like.device.ordinal));
}

bool overlap(const Array& a, const Array& b) {
  if (a.device != b.device) return false;
  const std::byte *end_a = a.data + a.span_bytes(), *end_b = b.data + b.span_bytes();
  return a.data < end_b && b.data < end_a && a.shape.numel() && b.shape.numel();
}

void check_apart(const Array& a, const std::string& name_a, const Array& b, const std::string& name_b) {
  TENON_CHECK(Usage, !overlap(a, b), name_a) << "shares memory with " << name_b << "; expected separate arrays";
}

void bind_arrays(nb::module_& m) {
  m.def("is_array", &is_array, nb::arg("object"), "Whether the object exports an array.");
  nb::class_<Array>(m, "Array")
      .def_prop_ro("dtype", [](const Array& a) { return std::string(name_of(a.dtype)); })
      .def_prop_ro(
          "shape",
          [](const Array& a) { return nb::tuple(nb::cast(std::vector<int64_t>(a.shape.begin(), a.shape.end()))); })
      .def_prop_ro("device", [](const Array& a) { return a.device.str(); })
      .def_prop_ro("backend", [](const Array& a) { return a.device.backend; })
      .def_prop_ro("ordinal", [](const Array& a) { return a.device.ordinal; })
      .def_prop_ro("contiguous", &Array::contiguous)
      .def_prop_ro("read_only", [](const Array& a) { return a.read_only; })
      .def_prop_ro("address", [](const Array& a) { return reinterpret_cast<uintptr_t>(a.data); })
      .def("__repr__", &Array::str);
  m.def(
      "read_array", [](nb::handle object, const std::string& name) { return read_array(object, name); },
      nb::arg("object").none(), nb::arg("name") = "array");
  m.def("new_array", &new_array, nb::arg("shape"), nb::arg("dtype"), nb::arg("like"));
}

}  // namespace tenon::python
