#include "tenon/io/files.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <memory>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {

constexpr size_t kChunk = size_t{1} << 20;

// A regular file open for reading.
class Reader {
 public:
  explicit Reader(const fs::path& path) : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    TENON_CHECK(Model, fd_ >= 0, path_.string()) << "cannot open for reading: " << system_reason(errno);
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
  // Reads up to kChunk bytes to the front of the buffer; returns how many, 0 at the end of the file.
  size_t read(std::span<char> buffer) {
    for (;;) {
      check_stop(path_.native());
      const ssize_t n = ::read(fd_, buffer.data(), std::min(buffer.size(), kChunk));
      if (n >= 0) return static_cast<size_t>(n);
      TENON_CHECK(Model, errno == EINTR, path_.string()) << "cannot read: " << system_reason(errno);
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

}  // namespace

std::string read_file(const fs::path& path, size_t most) {
  Reader reader(path);
  TENON_CHECK(Model, reader.size() <= most, path.string())
      << "has " << reader.size() << " bytes; at most " << most << " are read";
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

std::string read_argument_file(const fs::path& path, size_t most) {
  try {
    return read_file(path, most);
  } catch (const Error& e) {
    throw e.with_kind(e.kind() == ErrorKind::Model ? ErrorKind::Usage : e.kind());
  }
}

bool file_exists(const fs::path& path) {
  std::error_code failed;
  const fs::file_status target = fs::status(path, failed);
  if (target.type() != fs::file_type::none && target.type() != fs::file_type::not_found) return true;
  const bool dangling = target.type() == fs::file_type::not_found && fs::is_symlink(fs::symlink_status(path, failed));
  TENON_CHECK(Model, !dangling, path.string()) << "is a link to a file that does not exist";
  const bool nothing = target.type() == fs::file_type::not_found || failed == std::errc::filename_too_long;
  TENON_CHECK(Model, nothing, path.string()) << "cannot be accessed: " << system_reason(failed.value());
  return false;
}

bool folder_exists(const fs::path& path) {
  std::error_code failed;
  return file_exists(path) && fs::is_directory(path, failed);
}

bool has_ending(const std::filesystem::path& path, std::initializer_list<std::string_view> extensions) {
  std::string end = path.extension().string();
  std::ranges::transform(end, end.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(extensions, end) != extensions.end();
}

std::vector<fs::path> list_folder(const fs::path& folder) {
  std::error_code failed;
  std::vector<fs::path> out;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    out.push_back(at->path());
  TENON_CHECK(Model, !failed, folder.string()) << "cannot be read: " << system_reason(failed.value());
  std::sort(out.begin(), out.end());
  return out;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.hex();
}

std::string sha256_file(const fs::path& path) {
  Reader reader(path);
  Sha256 hash;
  std::vector<char> buffer(kChunk);
  while (const size_t n = reader.read(buffer)) hash.update(buffer.data(), n);
  return hash.hex();
}

}  // namespace tenon
