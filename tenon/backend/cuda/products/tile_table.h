// Measured choices of tiles: those shipped with Tenon (tiles/), and those of this machine, in a text file below the
// cache folder that TENON_CUDA_TUNE=1 fills. One line per product, "key = choice # microseconds"; if a library was
// measured too, a second line with "epilogue .." after the key (library_call.h).
#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tenon/backend/cuda/device.h"

namespace tenon::cuda {

/// The table shipped for an architecture; empty if nothing was measured on it.
std::string_view measured_tiles(std::string_view arch);

class TileTable {
 public:
  /// The table for devices like this one; read once per process.
  static TileTable& of(const DeviceFacts& facts);

  TileTable(std::string_view shipped, std::filesystem::path file);
  /// The text of the TileChoice for `key`.
  std::optional<std::string> find(const std::string& key) const;
  /// True if the product was measured on this machine, whether that choice can still run or not.
  bool measured_here(const std::string& key) const;
  /// Adds a measurement of this machine, and the file's lines of other processes, and rewrites the file, under a lock;
  /// a file that cannot be written is logged once. `note`: for people, after the time.
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
