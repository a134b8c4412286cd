#include "tenon/core/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <memory>
#include <string_view>

#include "tenon/core/error.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {

constexpr int kAttempts = 100;  // to find an unused temporary name
constexpr int kMaxLinks = 40;   // followed in a row, as in Linux
constexpr std::string_view kTemporaryBegin = ".tenon-", kTemporaryEnd = ".tmp";
constexpr time_t kSweepAfter = 60;  // seconds since a temporary file was last written

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

[[noreturn]] void refuse_existing(const fs::path& path, const std::string& hint = kExistsHint) {
  throw Error(ErrorKind::Usage, path.string(), "the file exists already", hint);
}

// A name for a temporary file in `folder`; short, so that it fits wherever the target's name does.
fs::path temporary_name(const fs::path& folder) {
  static std::atomic<unsigned> counter{0};
  std::string name(kTemporaryBegin);
  name.append(std::to_string(getpid())).append("-").append(std::to_string(counter++)).append(kTemporaryEnd);
  return folder / name;
}

// True for names that temporary_name produces.
bool is_temporary_name(std::string_view name) {
  const size_t around = kTemporaryBegin.size() + kTemporaryEnd.size();
  if (name.size() < around || !name.starts_with(kTemporaryBegin) || !name.ends_with(kTemporaryEnd)) return false;
  name = name.substr(kTemporaryBegin.size(), name.size() - around);
  const size_t dash = name.find('-');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  };
  return dash != name.npos && is_number(name.substr(0, dash)) && is_number(name.substr(dash + 1));
}

// Removes temporary files of processes that ended before they could. A live writer holds a lock on its file.
void sweep(const fs::path& folder) {
  const std::shared_ptr<DIR> open_folder(opendir(folder.c_str()), [](DIR* d) { return d ? closedir(d) : 0; });
  if (!open_folder) return;
  while (const dirent* entry = readdir(open_folder.get())) {
    if (!is_temporary_name(entry->d_name)) continue;
    const int at = dirfd(open_folder.get());
    const int fd = openat(at, entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat info {};
    const bool old =
        fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_mtime + kSweepAfter < time(nullptr);
    if (old && flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(at, entry->d_name, 0);
    if (fd >= 0) close(fd);
  }
}

// A file without a name: a killed process leaves nothing behind. -1 if the file system does not support it.
int open_nameless(const fs::path& folder) {
  if (access("/proc/self/fd", X_OK) != 0) return -1;
  return open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

// Gives an unnamed file a name without replacing anything; returns the error number, 0 for success.
int link_nameless(int fd, const fs::path& to) {
  const std::string from = "/proc/self/fd/" + std::to_string(fd);
  return linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

// Renames without replacing anything; returns the error number, 0 for success.
int rename_to_free_name(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // Without support for that flag, a hard link gives the same guarantee.
  if (link(from.c_str(), to.c_str()) != 0) return errno;
  unlink(from.c_str());
  return 0;
}

// The file that a link (or chain of links) names, whether it exists or not; any other path is returned as is.
fs::path behind_links(fs::path path) {
  std::error_code none;
  const fs::path given = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    const fs::path next = fs::read_symlink(path, none);
    if (none) return path;
    path = next.is_absolute() ? next : folder_of(path) / next;
  }
  throw Error(ErrorKind::Usage, given.string(), "is a loop of symbolic links, not a file to write");
}

const char* kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::fifo:
      return "FIFO";
    case fs::file_type::socket:
      return "socket";
    case fs::file_type::directory:
      return "folder";
    default:
      return "device";
  }
}

}  // namespace

std::string system_reason(int error) {
  return std::generic_category().message(error) + ", errno " + std::to_string(error);
}

fs::path output_place(const fs::path& path) {
  const fs::path target = behind_links(path), folder = folder_of(target);
  std::error_code failed;
  // A folder that does not exist yet has no canonical form but its normalised text.
  fs::path place = fs::canonical(folder, failed);
  if (failed) place = fs::absolute(folder, failed).lexically_normal();
  return (failed ? folder : place) / target.filename();
}

AtomicFile::AtomicFile(fs::path target, Overwrite overwrite)
    : name_(std::move(target)), target_(name_), overwrite_(overwrite) {
  check_output(name_, overwrite_);
  if (overwrite_ == Overwrite::Yes) target_ = behind_links(name_);
  fd_ = open_nameless(folder_of(target_));
  if (fd_ < 0 && !take_temporary_name()) fail("create", errno);
  struct stat replaced {};
  if (overwrite_ == Overwrite::Yes && stat(target_.c_str(), &replaced) == 0) fchmod(fd_, replaced.st_mode & 0777);
  flock(fd_, LOCK_EX | LOCK_NB);  // marks a live writer; without lock support nothing is swept either
}

AtomicFile::~AtomicFile() { discard(); }

// Links an unnamed file to a temporary name, or creates a file with such a name.
bool AtomicFile::take_temporary_name() {
  const fs::path folder = folder_of(target_);
  sweep(folder);
  int error = EEXIST;
  for (int attempt = 0; error == EEXIST && attempt < kAttempts; ++attempt) {
    const fs::path name = temporary_name(folder);
    if (fd_ >= 0)
      error = link_nameless(fd_, name);
    else
      error = (fd_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) >= 0 ? 0 : errno;
    if (error == 0) temporary_ = name;
  }
  errno = error;
  return error == 0;
}

void AtomicFile::discard() noexcept {
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void AtomicFile::fail(const char* action, int error) {
  discard();
  throw Error(ErrorKind::Internal, name_.string(),
              std::string("cannot ") + action + " the file: " + system_reason(error));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

// Gives the written file its name; returns the error number, 0 for success.
int AtomicFile::name_it() {
  const bool nameless = temporary_.empty();
  if (nameless) {
    const int error = link_nameless(fd_, target_);
    if (error != EEXIST || overwrite_ == Overwrite::No) return error;
    if (!take_temporary_name()) return errno;  // only a rename can replace a file, and it needs a name to rename from
  }
  if (overwrite_ == Overwrite::No) return rename_to_free_name(temporary_, target_);
  return rename(temporary_.c_str(), target_.c_str()) == 0 ? 0 : errno;
}

void AtomicFile::sync() {
  if (fsync(fd_) != 0) fail("write", errno);
}

void AtomicFile::commit() {
  sync();
  const int error = name_it();
  if (error == EEXIST) {
    discard();
    refuse_existing(name_);
  }
  if (error != 0) fail("name", error);
  temporary_.clear();
  close(fd_);  // after fsync, nothing is left to write
  fd_ = -1;
  // The new name survives a power failure only once its folder is on disk too, which a file system may not support.
  const int folder = open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
}

void write_file(const fs::path& path, std::span<const std::byte> bytes, Overwrite overwrite) {
  AtomicFile file(path, overwrite);
  file.write(bytes);
  file.commit();
}

void check_output(const fs::path& path, Overwrite overwrite, const std::string& hint) {
  TENON_CHECK(Usage, path.has_filename(), path.string()) << "expected the name of a file to write";
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  TENON_CHECK(Usage, !fs::exists(there) || fs::is_regular_file(there), path.string())
      << "is a " << kind_of(there.type()) << ", not a file to write";
  if (overwrite == Overwrite::No && fs::exists(fs::symlink_status(path, ignored))) refuse_existing(path, hint);
  const fs::path target = behind_links(path), folder = folder_of(target);
  const long longest = pathconf(folder.c_str(), _PC_NAME_MAX);
  TENON_CHECK(Internal, longest <= 0 || target.filename().native().size() <= static_cast<size_t>(longest),
              path.string())
      << "cannot create the file: " << system_reason(ENAMETOOLONG);
  int error = access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  struct stat info {};
  if (stat(folder.c_str(), &info) == 0 && info.st_nlink == 0) error = ENOENT;  // the folder was removed while in use
  if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) error = ENOTDIR;
  TENON_CHECK(Internal, error == 0, path.string())
      << "cannot write into folder '" << folder.string() << "': " << system_reason(error);
}

}  // namespace tenon
