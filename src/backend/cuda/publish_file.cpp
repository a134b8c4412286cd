#include "tenon/backend/cuda/publish_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "tenon/backend/cuda/file_descriptor.h"

namespace tenon::cuda {
namespace {

// 0, or the error number.
int write_all(int fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    at += static_cast<size_t>(n);
  }
  return fsync(fd) == 0 ? 0 : errno;
}

// A name beside the target that nobody else uses.
std::string temporary_name(const std::filesystem::path& target) {
  static std::atomic<unsigned> counter{0};
  return target.string() + "." + std::to_string(getpid()) + "-" + std::to_string(counter++) + ".tmp";
}

int replace(const std::string& temporary, const std::filesystem::path& target) {
  if (rename(temporary.c_str(), target.c_str()) == 0) return 0;
  const int error = errno;
  unlink(temporary.c_str());
  return error;
}

}  // namespace

// The file has no name before it is whole. Where the file system has no nameless files it has a temporary one.
int publish_file(const std::filesystem::path& target, const std::string& bytes) {
  const std::string temporary = temporary_name(target);
  const FileDescriptor nameless(open(target.parent_path().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  if (nameless.fd() >= 0) {
    if (const int error = write_all(nameless.fd(), bytes)) return error;
    const std::string from = "/proc/self/fd/" + std::to_string(nameless.fd());
    const auto name = [&](const char* as) {
      return linkat(AT_FDCWD, from.c_str(), AT_FDCWD, as, AT_SYMLINK_FOLLOW) == 0;
    };
    if (name(target.c_str())) return 0;
    if (errno == EEXIST && name(temporary.c_str())) return replace(temporary, target);
  }
  const FileDescriptor named(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (named.fd() < 0) return errno;
  if (const int error = write_all(named.fd(), bytes)) {
    unlink(temporary.c_str());
    return error;
  }
  return replace(temporary, target);
}

}  // namespace tenon::cuda
