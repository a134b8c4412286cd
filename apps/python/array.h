// Arrays of other libraries, read through DLPack without copies: NumPy, PyTorch, CuPy, JAX and whatever else exports
// __dlpack__. Libraries with DLPack's C exchange table (PyTorch from 2.10 on) are read through it, in nanoseconds.
#pragma once
#include <string>
#include <vector>

#include "apps/python/devices.h"
#include "apps/python/nb.h"
#include "tenon/core/dtype.h"
#include "tenon/core/shape.h"

namespace tenon::python {

/// A strided view of somebody's memory. Valid while the Python object and `owner` live.
struct Array {
  DType dtype = DType::F32;
  Shape shape;
  Coord strides{};  ///< in elements
  std::byte* data = nullptr;
  DeviceName device;
  bool read_only = false;
  std::shared_ptr<void> owner;  ///< what DLPack lends until it goes, or nothing; let go with the GIL held

  int64_t bytes() const { return shape.numel() * size_of(dtype); }
  /// Row-major without gaps.
  bool contiguous() const;
  /// Bytes from the first element to behind the last.
  int64_t span_bytes() const;
  /// "f32[4,8] on cpu"
  std::string str() const;
};

/// Reads `object`; `name` is what messages call it. Error(Usage), or TypeError for what is no array at all, says what
/// was expected and found.
Array read_array(nb::handle object, const std::string& name);
/// The same through the C exchange table, if the object's library has one: false if not. Shape and strides are valid
/// while the object lives.
bool read_quickly(nb::handle object, nb::dlpack::dltensor& out);
/// DLPack's element type and device, and back. type_of throws Error(Usage) for a type that Tenon has no word for.
nb::dlpack::dtype dlpack_type(DType type);
nb::dlpack::device dlpack_device(const DeviceName& device);
DType type_of(nb::dlpack::dtype type);
/// True if `object` exports arrays.
bool is_array(nb::handle object);

/// The stream of the device that the object's library works on now: a CUstream, where 0 (CUDA's legacy stream) is given
/// as its named handle; null for the CPU.
void* current_stream(nb::handle object, const DeviceName& device);

/// A new array of this type and shape on `like`'s device, as something that exports DLPack. Reads as zeros.
nb::object new_array(const std::vector<int64_t>& shape, const std::string& dtype, const Array& like);

/// True if the two arrays may share bytes.
bool overlap(const Array& a, const Array& b);
/// Error(Usage) that names both if an output shares memory with another output or an input.
void check_apart(const Array& a, const std::string& name_a, const Array& b, const std::string& name_b);

}  // namespace tenon::python
