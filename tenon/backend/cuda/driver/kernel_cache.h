// Compiled kernels on disk: one file per entry, named by a hash of all the compiler's inputs. Processes share the cache
// without locks: entries appear atomically, and a second writer would write the same bytes.
//
// File format: magic and format (8 bytes), SHA-256 of the rest and the key (32), sizes of cubin and log (8 each, little
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

/// Changes with what host and kernels agree on apart from the source: the entry point, how arguments are passed.
inline constexpr int kKernelAbi = 1;

/// SHA-256, in hex, of architecture, compiler version, options, ABI number and all source: the kernel's own
/// and every embedded header that it includes. The kernel's display name is left out.
std::string kernel_key(const KernelSource& source, const std::string& arch, std::pair<int, int> compiler_version);

/// A kernel as the bytes of a file.
std::string encode_entry(const std::string& key, const KernelBinary& kernel);
/// The kernel from a file's bytes, which may be arbitrary; empty if they are incomplete or for another key.
std::optional<KernelBinary> decode_entry(const std::string& key, std::string_view bytes);

/// Thread-safe. File system failures are not errors: a kernel that cannot be stored is compiled again next time.
class KernelCache {
 public:
  /// <cache folder>/kernels by default; an empty one stores nothing. The folder is created on the first store.
  explicit KernelCache(std::filesystem::path folder = default_folder());
  static std::filesystem::path default_folder();

  /// The entry, if there is a complete one. A damaged entry is removed with a warning.
  std::optional<KernelBinary> find(const std::string& key) const;
  /// Stores an entry. An object's first failure logs a warning; after that it does not try again.
  void store(const std::string& key, const KernelBinary& kernel) const;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path file_of(const std::string& key) const { return folder_ / (key + ".kernel"); }

 private:
  std::filesystem::path folder_;
  mutable std::atomic<bool> unwritable_;
};

}  // namespace tenon::cuda
