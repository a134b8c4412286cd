// Compiled kernels on disk: one file an entry, named by a hash of all that went into the compiler. Processes share it
// without locks: an entry appears whole or not at all, and whoever comes second finds the same bytes there.
//
// A file: magic and format (8 bytes), SHA-256 of the rest and the key (32), sizes of cubin and log (8 each, little
// endian), cubin, log.
#pragma once
#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tenon/backend/cuda/driver/nvrtc.h"

namespace tenon::cuda {

/// Changes with what host and kernels agree on beyond the source: the entry point, how arguments are passed.
inline constexpr int kKernelAbi = 1;

/// SHA-256, in hex, of architecture, compiler version, options, ABI number and the complete source: the kernel's text
/// and every embedded header. The kernel's name for people is no part of it.
std::string kernel_key(const KernelSource& source, const std::string& arch, std::pair<int, int> compiler_version);

/// A kernel as a file's bytes.
std::string encode_entry(const std::string& key, const KernelBinary& kernel);
/// The kernel of a file's bytes, which may be any; nothing if they are not whole, or of another key.
std::optional<KernelBinary> decode_entry(const std::string& key, std::string_view bytes);

/// Thread-safe. No failure of the file system is an error: a kernel that cannot be kept is compiled again next time.
class KernelCache {
 public:
  /// <cache folder>/kernels by default. The folder is made when something is stored.
  explicit KernelCache(std::filesystem::path folder = default_folder());
  static std::filesystem::path default_folder();

  /// The entry, if there is a whole one. A damaged one is removed with a warning.
  std::optional<KernelBinary> find(const std::string& key) const;
  /// Keeps an entry. The first failure of an object is a warning; after it nothing more is tried.
  void store(const std::string& key, const KernelBinary& kernel) const;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path file_of(const std::string& key) const { return folder_ / (key + ".kernel"); }

 private:
  std::filesystem::path folder_;
  mutable std::atomic<bool> unwritable_{false};
};

}  // namespace tenon::cuda
