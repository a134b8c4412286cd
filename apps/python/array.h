// Arrays of other libraries, read through DLPack without copies: NumPy, PyTorch, CuPy, JAX and anything else that
// exports __dlpack__. Libraries with DLPack's C exchange table (PyTorch from 2.10 on) are read through it, in
// nanoseconds.
#pragma once
#include <string>
#include <vector>

#include "apps/python/devices.h"
#include "apps/python/nb.h"
#include "tenon/core/dtype.h"
#include "tenon/core/shape.h"

namespace tenon::python {

/// A strided view of another library's memory. Valid while the Python object and `owner` live.
struct Array {
  DType dtype = DType::F32;
  Shape shape;
  Coord strides{};  ///< in elements
  std::byte* data = nullptr;
  DeviceName device;
  bool read_only = false;
  std::shared_ptr<void> owner;  ///< DLPack's managed tensor, or null; released with the GIL held

  int64_t bytes() const { return shape.numel() * size_of(dtype); }
  /// Row-major without gaps.
  bool contiguous() const;
  /// Bytes from the first element to the end of the last.
  int64_t span_bytes() const;
  /// "f32[4,8] on cpu"
  std::string str() const;
};

/// Element types that arrays may have.
inline constexpr const char* kElementTypes = "f32, bf16, f16, e4m3, i8, i16, i32, i64, u8 or bool";

/// Reads `object`, which messages call `name`. Error(Usage), or TypeError if it is not an array, says what was expected
/// and found; `types` are those that the caller takes, for the message about one that no caller does.
Array read_array(nb::handle object, const std::string& name, const char* types = kElementTypes);
/// The same through the C exchange table; false if the object's library has none or refuses (read_array then says why).
/// Shape and strides are valid while the object lives.
bool read_quickly(nb::handle object, nb::dlpack::dltensor& out);
/// Convert to DLPack's element type and device. type_of converts back, and throws Error(Usage) for types that Tenon
/// does not have.
nb::dlpack::dtype dlpack_type(DType type);
nb::dlpack::device dlpack_device(const DeviceName& device);
DType type_of(nb::dlpack::dtype type);
/// True if `object` exports arrays.
bool is_array(nb::handle object);

/// The current stream of the object's library on the device: a CUstream, where 0 (CUDA's legacy stream) is given as its
/// named handle; null for the CPU.
void* current_stream(nb::handle object, const DeviceName& device);

/// A new array of this type and shape on `like`'s device, as an object that exports DLPack. Initialised to zeros.
nb::object new_array(const std::vector<int64_t>& shape, const std::string& dtype, const Array& like);

/// Whether the two arrays may share memory.
bool overlap(const Array& a, const Array& b);
/// Error(Usage) that names both if an output shares memory with another output or an input.
void check_apart(const Array& a, const std::string& name_a, const Array& b, const std::string& name_b);

}  // namespace tenon::python
