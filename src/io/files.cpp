#include "tenon/io/files.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "tenon/core/error.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {

constexpr int kAttempts = 100;  // at a temporary name that nobody has

std::string reason(int error) { return std::generic_category().message(error) + ", errno " + std::to_string(error); }

// An open file descriptor for reading a regular file.
class Reader {
 public:
  explicit Reader(const fs::path& path) : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    TENON_CHECK(Model, fd_ >= 0, path_.string()) << "cannot open for reading: " << reason(errno);
    struct stat info {};
    const bool regular = fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
    if (!regular) {
      close(fd_);
      throw Error(ErrorKind::Model, path_.string(), "expected a regular file");
    }
    size_ = static_cast<size_t>(info.st_size);
  }
  ~Reader() { close(fd_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  size_t size() const { return size_; }
  // Bytes read into the buffer; 0 at the end of the file.
  size_t read(std::span<char> buffer) {
    for (;;) {
      const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
      if (n >= 0) return static_cast<size_t>(n);
      TENON_CHECK(Model, errno == EINTR, path_.string()) << "cannot read: " << reason(errno);
    }
  }

 private:
  fs::path path_;
  int fd_;
  size_t size_ = 0;
};

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    TENON_CHECK(Internal, context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "sha256")
        << "the crypto library has no SHA-256";
  }
  void update(const void* data, size_t size) { EVP_DigestUpdate(context_.get(), data, size); }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &length);
    std::string out;
    for (unsigned i = 0; i < length; ++i) {
      out += "0123456789abcdef"[digest[i] >> 4];
      out += "0123456789abcdef"[digest[i] & 15];
    }
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

[[noreturn]] void refuse_existing(const fs::path& path) {
  throw Error(ErrorKind::Usage, path.string(), "the file exists already", "choose another name or give --overwrite");
}

// A name for a temporary file in `folder`. Short, so that every name a file system takes can be written.
fs::path temporary_name(const fs::path& folder) {
  static std::atomic<unsigned> counter{0};
  return folder / (".tenon-" + std::to_string(getpid()) + "-" + std::to_string(counter++) + ".tmp");
}

// A file without a name: a process that is killed leaves nothing. -1 where the file system has no such thing.
int open_nameless(const fs::path& folder) {
  if (access("/proc/self/fd", X_OK) != 0) return -1;
  return open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

// Names a nameless file without ever replacing; the error number, 0 for success.
int link_nameless(int fd, const fs::path& to) {
  const std::string from = "/proc/self/fd/" + std::to_string(fd);
  return linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

// Renames without ever replacing; the error number, 0 for success.
int rename_to_free_name(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system without that flag: a hard link has the same guarantee.
  if (link(from.c_str(), to.c_str()) != 0) return errno;
  unlink(from.c_str());
  return 0;
}

}  // namespace

std::string read_file(const fs::path& path) {
  Reader reader(path);
  std::string out(reader.size(), '\0');
  size_t filled = 0;
  while (filled < out.size()) {
    const size_t n = reader.read(std::span(out).subspan(filled));
    if (n == 0) break;
    filled += n;
  }
  out.resize(filled);
  return out;
}

std::string read_argument_file(const fs::path& path) {
  try {
    return read_file(path);
  } catch (const Error& e) {
    const std::string text = e.what(), prefix = "[" + e.where() + "] ";
    throw Error(ErrorKind::Usage, e.where(), text.starts_with(prefix) ? text.substr(prefix.size()) : text);
  }
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.hex();
}

std::string sha256_file(const fs::path& path) {
  Reader reader(path);
  Sha256 hash;
  std::vector<char> buffer(size_t{1} << 20);
  while (const size_t n = reader.read(buffer)) hash.update(buffer.data(), n);
  return hash.hex();
}

AtomicFile::AtomicFile(fs::path target, Overwrite overwrite) : target_(std::move(target)), overwrite_(overwrite) {
  check_output(target_, overwrite_);
  fd_ = open_nameless(folder_of(target_));
  for (int attempt = 0; fd_ < 0 && attempt < kAttempts; ++attempt) {
    temporary_ = temporary_name(folder_of(target_));
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) break;
  }
  if (fd_ >= 0) return;
  const int error = errno;
  temporary_.clear();
  fail("create", error);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(const char* action, int error) {
  discard();
  throw Error(ErrorKind::Internal, target_.string(), std::string("cannot ") + action + " the file: " + reason(error));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

// Gives the written file its name; the error number, 0 for success.
int AtomicFile::name_it() {
  const bool nameless = temporary_.empty();
  if (overwrite_ == Overwrite::No)
    return nameless ? link_nameless(fd_, target_) : rename_to_free_name(temporary_, target_);
  int error = nameless ? EEXIST : 0;  // only a rename replaces, and it needs a name to start from
  for (int attempt = 0; error == EEXIST && attempt < kAttempts; ++attempt) {
    const fs::path name = temporary_name(folder_of(target_));
    error = link_nameless(fd_, name);
    if (error == 0) temporary_ = name;
  }
  if (error == 0 && rename(temporary_.c_str(), target_.c_str()) != 0) error = errno;
  return error;
}

void AtomicFile::commit() {
  if (fsync(fd_) != 0) fail("write", errno);
  const int error = name_it();
  if (error == EEXIST) {
    discard();
    refuse_existing(target_);
  }
  if (error != 0) fail("name", error);
  temporary_.clear();
  close(fd_);  // after fsync nothing is left to be written
  fd_ = -1;
  // The new name survives a power cut only when its folder is on disk too; a file system may not offer that.
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

void check_output(const fs::path& path, Overwrite overwrite) {
  TENON_CHECK(Usage, path.has_filename(), path.string()) << "expected the name of a file to write";
  std::error_code ignored;
  TENON_CHECK(Usage, !fs::is_directory(path, ignored), path.string()) << "is a folder, not a file to write";
  if (overwrite == Overwrite::No && fs::exists(fs::symlink_status(path, ignored))) refuse_existing(path);
  const fs::path folder = folder_of(path);
  const long longest = pathconf(folder.c_str(), _PC_NAME_MAX);
  TENON_CHECK(Internal, longest <= 0 || path.filename().native().size() <= static_cast<size_t>(longest), path.string())
      << "cannot create the file: " << reason(ENAMETOOLONG);
  int error = access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) error = ENOTDIR;
  TENON_CHECK(Internal, error == 0, path.string())
      << "cannot write into folder '" << folder.string() << "': " << reason(error);
}

}  // namespace tenon
