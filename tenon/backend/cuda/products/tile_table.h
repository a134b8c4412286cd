// Choices of tiles that were measured: those that come with Tenon (tiles/), and those of this machine, in a
// text file below the cache folder that TENON_CUDA_TUNE=1 fills. One line a product: "key = choice # microseconds";
// where a library was measured too, a second one with "epilogue .." behind the key (library_call.h).
#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tenon/backend/cuda/device.h"

namespace tenon::cuda {

/// What comes with Tenon for an architecture; empty for one that nothing was measured on.
std::string_view measured_tiles(std::string_view arch);

class TileTable {
 public:
  /// The table of devices like this one; read once a process.
  static TileTable& of(const DeviceFacts& facts);

  TileTable(std::string_view shipped, std::filesystem::path file);
  /// The text of a TileChoice.
  std::optional<std::string> find(const std::string& key) const;
  /// True if this machine has measured the product.
  bool measured_here(const std::string& key) const;
  /// Adds what was measured here, and writes the file anew; a file that cannot be written is reported in the log once.
  /// `note`: for people, behind the time.
  void add(const std::string& key, const std::string& choice, double microseconds, const std::string& note = {});

 private:
  struct Entry {
    std::string choice;
    std::string comment;
  };
  static void read(std::string_view text, std::map<std::string, Entry>& into);

  std::filesystem::path file_;
  std::map<std::string, Entry> shipped_, here_;
  mutable std::mutex mutex_;
  bool warned_ = false;
};

}  // namespace tenon::cuda
