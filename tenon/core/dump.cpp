#include "tenon/core/dump.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {

constexpr size_t kLongestName = 120;

// A path component without anything that could lead elsewhere.
std::string plain(std::string_view step) {
  std::string out;
  for (const char c : step.substr(0, kLongestName)) {
    const bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                      c == '+' || (c == '.' && !out.empty());
    out += fine ? c : '_';
  }
  return out;
}

}  // namespace

bool dumping() { return !option(Option::Dump).empty(); }

void dump(const std::string& name, std::string_view text) {
  if (!dumping()) return;
  fs::path path = option(Option::Dump);
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    path /= plain(std::string_view(name).substr(begin, end - begin));
    begin = end + 1;
  }
  static std::mutex writing;  // several threads may write the same file
  const std::lock_guard lock(writing);
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  errno = 0;
  std::ofstream file(path);
  file << text;
  if (file.flush().good()) return;
  const int error = failed ? failed.value() : errno;
  if (file.is_open()) fs::remove(path, failed);  // leave no partial file
  throw Error(ErrorKind::Internal, "TENON_DUMP", "cannot write " + path.string() + ": " + system_reason(error));
}

}  // namespace tenon
