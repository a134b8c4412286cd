// GGUF, versions 2 and 3, little endian: metadata by key, then tensors, possibly quantised in blocks.
//
// Invariants of an open file: keys and tensor names are unique; every string, array and tensor lies inside the file;
// tensors have a known type, whole blocks per row and offsets that are multiples of the file's alignment, and do not
// overlap. A file that breaks one of these is refused on opening, with one Error(Model) that names the file and the key
// or tensor. Opening takes time and memory in proportion to the part of the file before the tensor data, at most 12
// times its size. Values and tensors are views of the mapped file; nothing is copied.
//
// Shapes are in our order (rows first); GGUF stores them innermost first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/shape.h"
#include "tenon/io/gguf_blocks.h"
#include "tenon/io/mapped_file.h"

namespace tenon {

/// Types of metadata values, numbered as in the file.
enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };

/// A metadata value: a view of the file.
struct GgufValue {
  GgufType type = GgufType::U8;  ///< of the value, or of an array's elements
  bool is_array = false;
  uint64_t count = 1;               ///< elements of an array
  std::span<const std::byte> data;  ///< numbers, or strings each preceded by its length (8 bytes)
};

/// One tensor. Valid as long as any copy of its GgufFile lives; `data` may have any alignment.
struct GgufTensor {
  std::string name;
  BlockType type = BlockType::F32;
  Shape shape;  ///< at most four extents, in our order: rows first
  std::span<const std::byte> data;

  /// Bytes of one row (the last axis), in whole blocks.
  size_t row_bytes() const { return data.empty() ? 0 : data.size() / static_cast<size_t>(shape.rows()); }
};

/// Copies share the mapped file.
class GgufFile {
 public:
  /// Maps and checks the file.
  static GgufFile open(const std::filesystem::path& path);
  /// The same checks over bytes in memory, which must outlive the object. `name` replaces the path in errors.
  static GgufFile from_bytes(std::span<const std::byte> bytes, const std::string& name);

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  /// general.architecture: "llama", "qwen2", "qwen3", "lumina2", ... Error(Model) if the file has none.
  std::string architecture() const;

  bool has(std::string_view key) const { return values_.count(key) > 0; }
  const std::map<std::string_view, GgufValue>& values() const { return values_; }
  /// Metadata by key. Empty if there is no such key; Error(Model) if the value is of another kind or, for integer(),
  /// does not fit 64 signed bits. number() accepts every integer and floating-point type.
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  /// Arrays; empty vector if there is no such key.
  std::vector<std::string_view> strings(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;

  /// Tensors by name; those of types that cannot be converted are in unsupported(), with the type's name.
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, std::string_view, std::less<>>& unsupported() const { return unsupported_; }
  /// Error(Model) if there is no such tensor, or if its type cannot be converted.
  const GgufTensor& at(std::string_view tensor) const;

 private:
  friend class GgufReader;
  GgufFile() = default;
  const GgufValue* find(std::string_view key, bool array) const;

  std::string name_;
  MappedFile file_;
  uint32_t version_ = 0;
  std::map<std::string_view, GgufValue> values_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
  std::map<std::string, std::string_view, std::less<>> unsupported_;
};

}  // namespace tenon
