// A regular file mapped into memory, read-only.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace tenon {

/// Copies share one mapping, which ends with the last of them. Truncating the file while it is mapped kills the process
/// (SIGBUS), as with any mapping.
class MappedFile {
 public:
  /// Error(Model) names the path and the reason: missing, not readable, not a regular file. An empty file gives an
  /// empty span.
  static MappedFile open(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

}  // namespace tenon
