// safetensors: a length (8 bytes, little endian), a JSON header, then tensor data, every byte of which the header
// accounts for.
//
// Invariants of an open file: every tensor's range lies inside the file and has exactly the bytes that its shape and
// element type need; the ranges cover the data without overlap or gap; the header is valid JSON without duplicate
// tensor names. A file that breaks one of these is refused on opening, with one Error(Model) that names the file, the
// tensor, and what was expected and found. Opening takes time and memory in proportion to the header, under 2 s and 8
// times its size for the longest, and asks check_stop().
//
// Views are zero-copy. Header lengths that are not a multiple of 8 are common (a published 4.3 GB checkpoint has one),
// so `data` may have any alignment, down to one byte: read elements with load_element or memcpy, never through a cast
// pointer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/dtype.h"
#include "tenon/core/shape.h"

namespace tenon {

/// Longest header accepted, as in the reference reader.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;
/// Most tensors in one file: a hundred times as many as in the largest published shards.
inline constexpr size_t kMaxTensors = size_t{1} << 18;
/// Most entries of __metadata__; training tools write some hundreds.
inline constexpr size_t kMaxMetadata = size_t{1} << 16;

/// One tensor of an open file. Valid as long as the file's object lives; `data` is unaligned (see the file comment).
struct TensorView {
  DType dtype = DType::F32;
  Shape shape;
  const std::byte* data = nullptr;
  size_t size = 0;  ///< bytes
};

/// A tensor whose element type we cannot represent (F8_E5M2, U16, ...). Its range is checked like all others.
struct UnsupportedTensor {
  std::string dtype;  ///< as the file spells it
  std::string shape;  ///< "[2,3]"
};

/// The spelling of a type in safetensors headers: "F32", "F8_E4M3", "BOOL", ...
std::string_view safetensors_name(DType t);

/// A mapped safetensors file, read-only. Truncating the file while it is open kills the process (SIGBUS), as with any
/// mapping.
class SafetensorsFile {
 public:
  /// Maps and checks the file.
  static SafetensorsFile open(const std::filesystem::path& path);
  /// Whether this text occurs anywhere in a file's header: a quick check that does not parse it.
  static bool mentions(const std::filesystem::path& path, std::string_view text);
  /// The same checks over bytes in memory, which must outlive the object. `name` replaces the path in errors.
  static SafetensorsFile from_bytes(std::span<const std::byte> bytes, const std::string& name);

  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  const std::string& name() const { return name_; }
  /// Supported tensors by name.
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, UnsupportedTensor>& unsupported() const { return unsupported_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& tensor) const { return tensors_.count(tensor) > 0; }
  /// The tensor of that name. Error(Model) if there is none, or if its element type is unsupported.
  const TensorView& at(const std::string& tensor) const;
  /// Size of the whole file in bytes.
  size_t size() const { return bytes_.size(); }
  /// The bytes after the header.
  std::span<const std::byte> data() const { return data_; }

 private:
  friend struct WeightSet;
  struct Mapping;
  static std::shared_ptr<const Mapping> map(const std::filesystem::path& path);
  SafetensorsFile(std::string name, std::span<const std::byte> bytes);

  std::string name_;
  std::shared_ptr<const Mapping> mapping_;
  std::span<const std::byte> bytes_, data_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, UnsupportedTensor> unsupported_;
  std::map<std::string, std::string> metadata_;
};

/// Tells the system that a mapped view's pages are no longer needed (its weights were packed elsewhere): resident
/// memory falls by the whole pages inside the view. Reading the view later is allowed and reads the file again. Only
/// for views of files from SafetensorsFile::open: in other memory the bytes would be lost.
void release(const TensorView& view);
/// Asks the system to start reading a mapped view's pages from disk.
void prefetch(const TensorView& view);

/// A weight file, or all files that a `*.safetensors.index.json` names, as one set of tensors.
struct WeightSet {
  std::map<std::string, TensorView> tensors;
  std::map<std::string, UnsupportedTensor> unsupported;
  std::map<std::string, std::string> metadata;
  std::vector<std::shared_ptr<const void>> bytes;  ///< memory behind the views, one entry per file
  std::vector<std::filesystem::path> files;        ///< all that were read, an index first

  /// Moves a file's tensors into the set; Error(Model) for a duplicate name.
  void take(SafetensorsFile file);
};

/// Opens a .safetensors file or an index. Error(Model) unless an index names only files of its own folder, lists all
/// their tensors, each tensor is where the index says, and no name occurs in two files.
WeightSet open_weights(const std::filesystem::path& path);

/// A tensor to be written: `data` holds shape.numel() elements of `dtype`, row-major.
struct TensorData {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  std::span<const std::byte> data;
};

/// Writes a safetensors file atomically, replacing an older one. The header is padded with blanks to start the data
/// 8-byte aligned; tensors are ordered by element size, widest first, then by name, so that each is aligned to its
/// elements. Error(Usage) for duplicate names or a size that does not match; Error(Internal) if the system cannot
/// write.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorData> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tenon
