// The one argument of a kernel: a struct built field by field beside the text that reads it. Names tell the role of a
// field, never a model's tensor, so that launches of equal meaning have equal text and share a compiled kernel.
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
  /// Where the address of a leaf's first element stands in the bytes.
  struct Pointer {
    size_t at;
    Expr leaf;
    std::string name = {};  ///< of the field
    bool written = false;
  };

  /// A tensor map (TMA) in the argument: the box that is made of the leaf's address when that is known.
  using MakeBox = std::function<TensorBox(void* address)>;
  struct Map {
    size_t at;
    Expr leaf;
    MakeBox box;
  };

  /// The sizes of the skeleton, a plain struct of device/, as `p.sizes`. Called first, again to change the values.
  template <class T>
  void set_sizes(const char* type, const T& sizes) {
    static_assert(std::is_trivially_copyable_v<T>);
    sizes_type_ = type;
    sizes_.resize((sizeof(T) + 7) / 8 * 8);
    std::memcpy(sizes_.data(), &sizes, sizeof(T));
  }
  /// The field that points to `leaf`'s elements; one field a leaf. Read as "p.in0", written as "p.out0".
  std::string pointer(const Expr& leaf, bool written);
  /// From now on `leaf` lies in the block's shared memory; the field with its byte offset there.
  std::string keep_shared(const Expr& leaf);
  /// Bytes of shared memory that are taken, a multiple of 16.
  int64_t shared_bytes() const { return shared_bytes_; }
  /// Takes more of them; the number of the first.
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
  /// The argument with null pointers, and where these stand. Throws Error(Memory) for a number beyond 2^31.
  std::vector<std::byte> bytes() const;
  std::vector<Pointer> pointers() const;
  const std::vector<Map>& maps() const { return maps_; }
  size_t sizes_at() const { return maps_.size() * sizeof(TensorMap); }

 private:
  struct Field {
    std::string type, name;
    Expr leaf;  // of pointers
    bool written = false;
    std::vector<std::byte> value;
  };
  std::string add(const std::string& type, const std::string& role, const void* value, size_t bytes);

  std::map<const Node*, std::string> shared_;  // the field with its offset
  int64_t shared_bytes_ = 0;
  std::vector<Map> maps_;  // first: they are aligned to lines
  std::string sizes_type_;
  std::vector<std::byte> sizes_;
  std::vector<Field> pointers_, fields_;  // pointers stand first: 8-byte alignment
};

/// `value` as kernels hold it; Error(Memory) beyond 2^31.
int32_t checked_int(int64_t value);
/// What kernels need to divide by `d`.
device::Divisor divisor_of(int64_t d);
/// The element type in kernel text: "BF16", "float".
std::string type_source(DType t);

}  // namespace tenon::cuda
