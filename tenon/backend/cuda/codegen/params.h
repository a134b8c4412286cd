// A kernel's single argument: a struct built field by field along with the source that reads it. Names tell a field's
// role, never a model's tensor, so that equivalent launches have equal source and share a compiled kernel.
#pragma once
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/device/index.h"
#include "tenon/expr/expr.h"

namespace tenon::cuda {

class Params {
 public:
  /// Where the address of a leaf's first element goes in the bytes.
  struct Pointer {
    size_t at;
    Expr leaf;
    std::string name = {};  ///< of the field
    bool written = false;
  };

  /// A tensor map (TMA) in the argument: the box made from the leaf's address once that is known.
  using MakeBox = std::function<TensorBox(void* address)>;
  struct Map {
    size_t at;
    Expr leaf;
    MakeBox box;
  };

  /// The sizes of the skeleton, a plain struct of device/, as `p.sizes`. Call it first; call it again to change the
  /// values.
  template <class T>
  void set_sizes(const char* type, const T& sizes) {
    static_assert(std::is_trivially_copyable_v<T>);
    sizes_type_ = type;
    sizes_.resize((sizeof(T) + 7) / 8 * 8);
    std::memcpy(sizes_.data(), &sizes, sizeof(T));
  }
  /// The field that points to `leaf`'s elements; one field per leaf. "p.in0" if read, "p.out0" if written.
  std::string pointer(const Expr& leaf, bool written);
  /// From now on `leaf` is in the block's shared memory; returns the field with its byte offset.
  std::string keep_shared(const Expr& leaf);
  /// Shared memory in use, a multiple of 16 bytes.
  int64_t shared_bytes() const { return shared_bytes_; }
  /// Reserves more shared memory; returns the offset of its first byte.
  std::string reserve_shared(const std::string& role, int64_t bytes);
  void reserve_shared(int64_t bytes) { shared_bytes_ += (bytes + 15) / 16 * 16; }
  bool in_shared(const Expr& leaf) const { return shared_.contains(leaf.get()); }
  /// A tensor map over `leaf`'s elements.
  std::string map(const Expr& leaf, MakeBox box);
  std::string integer(const std::string& role, int64_t value);
  /// A number to divide by.
  std::string divisor(const std::string& role, int64_t value);
  std::string number(const std::string& role, double value);

  /// "struct Params { .. };"
  std::string declaration() const;
  /// The argument with null pointers, and their positions. Throws Error(Memory) for a number beyond 2^31.
  std::vector<std::byte> bytes() const;
  std::vector<Pointer> pointers() const;
  const std::vector<Map>& maps() const { return maps_; }
  size_t sizes_at() const { return maps_.size() * sizeof(TensorMap); }

 private:
  struct Field {
    std::string type, name;
    Expr leaf;  // for pointers
    bool written = false;
    std::vector<std::byte> value;
  };
  std::string add(const std::string& type, const std::string& role, const void* value, size_t bytes);

  std::map<const Node*, std::string> shared_;  // the field with the leaf's offset
  int64_t shared_bytes_ = 0;
  std::vector<Map> maps_;  // come first: they are aligned to 64 bytes
  std::string sizes_type_;
  std::vector<std::byte> sizes_;
  std::vector<Field> pointers_, fields_;  // pointers come before other fields: 8-byte alignment
};

/// `value` as kernels store it; throws Error(Memory) beyond 2^31.
int32_t checked_int(int64_t value);
/// What kernels need to divide by `d`.
device::Divisor divisor_of(int64_t d);
/// The element type in kernel source: "BF16", "float".
std::string type_source(DType t);

}  // namespace tenon::cuda
