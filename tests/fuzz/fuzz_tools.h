// Shared by fuzz targets.
#pragma once
#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/error.h"

namespace fuzz {

/// A folder for the files of one process, removed when it ends.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tenon-fuzz-XXXXXX").string();
    if (!mkdtemp(name.data())) std::abort();
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << text;
  }

 private:
  std::filesystem::path path_;
};

/// The input split at zero bytes into `count` texts; the last has the rest, missing ones are empty.
inline std::vector<std::string_view> texts(const uint8_t* data, size_t size, size_t count) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> out;
  while (out.size() + 1 < count) {
    const size_t cut = std::min(rest.find('\0'), rest.size());
    out.push_back(rest.substr(0, cut));
    rest.remove_prefix(std::min(cut + 1, rest.size()));
  }
  out.push_back(rest);
  return out;
}

/// Runs `f`, which may throw an Error of one of these kinds and nothing else. False if it did.
template <class F>
bool refuses_only(std::initializer_list<tenon::ErrorKind> kinds, const F& f) {
  try {
    f();
    return true;
  } catch (const tenon::Error& e) {
    for (const tenon::ErrorKind k : kinds)
      if (e.kind() == k) return false;
    std::fprintf(stderr, "an Error of another kind: %s\n", e.what());
    std::abort();
  }
}

}  // namespace fuzz
