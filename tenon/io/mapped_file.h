// A regular file's bytes as memory, read-only.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace tenon {

/// Copies share one map, which goes with the last of them. Truncating the file while it is mapped ends the process
/// (SIGBUS), as with any map.
class MappedFile {
 public:
  /// Error(Model) names the path and the reason: not there, not readable, not a regular file. An empty file is empty
  /// memory.
  static MappedFile open(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

}  // namespace tenon
