#include "tenon/backend/cuda/driver/kernel_cache.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "tenon/backend/cuda/driver/embedded_texts.h"
#include "tenon/backend/cuda/driver/file_descriptor.h"
#include "tenon/backend/cuda/driver/included_headers.h"
#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/options.h"

namespace tenon::cuda {
namespace fs = std::filesystem;
namespace {

constexpr char kMagic[8] = {'T', 'E', 'N', 'O', 'N', 'K', '0', '1'};
constexpr size_t kDigestBytes = 32, kHeaderBytes = sizeof kMagic + kDigestBytes + 16;
constexpr size_t kLargestEntry = size_t{1} << 28;
using Digest = std::array<unsigned char, kDigestBytes>;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    TENON_CHECK(Internal, context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "sha256")
        << "the crypto library has no SHA-256";
  }
  Sha256& bytes(const void* data, size_t size) {
    EVP_DigestUpdate(context_.get(), data, size);
    return *this;
  }
  // Hashes a text with its length, so that different sequences of texts hash differently.
  Sha256& text(const std::string& text) {
    const uint64_t size = text.size();
    return bytes(&size, sizeof size).bytes(text.data(), text.size());
  }
  Digest digest() {
    Digest out{};
    EVP_DigestFinal_ex(context_.get(), out.data(), nullptr);
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

std::string hex(const Digest& digest) {
  std::string out;
  for (unsigned char byte : digest) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

struct Header {
  Digest digest;
  std::vector<std::string> includes;
};

// The embedded headers, read once.
const std::map<std::string, Header>& headers() {
  static const std::map<std::string, Header> all = [] {
    std::map<std::string, Header> made;
    for (const EmbeddedText& header : embedded_headers())
      made[header.name] = {Sha256().text(header.text).digest(), included_names(header.text)};
    return made;
  }();
  return all;
}

// The contents of a regular file, or empty if it cannot be read or is too large to be one of ours.
std::optional<std::string> read_entry(const fs::path& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.fd() < 0 || fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  if (static_cast<size_t>(info.st_size) > kLargestEntry) return {};
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t n = read(file.fd(), bytes.data() + filled, bytes.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    filled += static_cast<size_t>(n);
  }
  bytes.resize(filled);
  return bytes;
}

Digest entry_digest(const std::string& key, std::string_view rest) {
  return Sha256().text(key).bytes(rest.data(), rest.size()).digest();
}

}  // namespace

std::string kernel_key(const KernelSource& source, const std::string& arch, std::pair<int, int> compiler_version) {
  Sha256 hash;
  hash.text("tenon kernel").text(std::to_string(kKernelAbi)).text(arch);
  hash.text(std::to_string(compiler_version.first) + "." + std::to_string(compiler_version.second));
  for (const std::string& option : compile_options(source, arch)) hash.text(option);
  const auto known = [](const std::string& name) {
    const auto header = headers().find(name);
    return header == headers().end() ? nullptr : &header->second.includes;
  };
  for (const std::string& name : all_included(source.code, known)) {
    const Digest& digest = headers().at(name).digest;
    hash.text(name).bytes(digest.data(), digest.size());
  }
  return hex(hash.text(source.code).digest());
}

std::string encode_entry(const std::string& key, const KernelBinary& kernel) {
  const uint64_t sizes[2] = {kernel.cubin.size(), kernel.log.size()};
  std::string rest(reinterpret_cast<const char*>(sizes), sizeof sizes);
  rest.append(reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size());
  rest += kernel.log;
  const Digest digest = entry_digest(key, rest);
  return std::string(kMagic, sizeof kMagic) + std::string(digest.begin(), digest.end()) + rest;
}

std::optional<KernelBinary> decode_entry(const std::string& key, std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) return {};
  const std::string_view rest = bytes.substr(sizeof kMagic + kDigestBytes);
  const Digest digest = entry_digest(key, rest);
  if (std::memcmp(bytes.data() + sizeof kMagic, digest.data(), kDigestBytes) != 0) return {};
  uint64_t sizes[2];
  std::memcpy(sizes, rest.data(), sizeof sizes);
  const std::string_view payload = rest.substr(sizeof sizes);
  if (sizes[0] > payload.size() || sizes[1] != payload.size() - sizes[0]) return {};
  const auto* cubin = reinterpret_cast<const std::byte*>(payload.data());
  return KernelBinary{{cubin, cubin + sizes[0]}, std::string(payload.substr(sizes[0]))};
}

KernelCache::KernelCache(fs::path folder) : folder_(std::move(folder)), unwritable_(folder_.empty()) {}

fs::path KernelCache::default_folder() { return cached("kernels"); }

std::optional<KernelBinary> KernelCache::find(const std::string& key) const {
  if (folder_.empty()) return {};
  const fs::path path = file_of(key);
  const std::optional<std::string> bytes = read_entry(path);
  if (!bytes) return {};
  std::optional<KernelBinary> kernel = decode_entry(key, *bytes);
  if (!kernel) {
    spdlog::warn("kernel cache: {} is corrupt; compiling it again", path.string());
    unlink(path.c_str());
  }
  return kernel;
}

void KernelCache::store(const std::string& key, const KernelBinary& kernel) const {
  if (unwritable_) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  std::string failed = error ? folder_.string() + ": " + error.message() : "";
  try {
    const std::string bytes = encode_entry(key, kernel);
    if (!error) write_file(file_of(key), std::as_bytes(std::span(bytes)), Overwrite::Yes);
  } catch (const Error& e) {
    failed = e.what();
  }
  if (!failed.empty() && !unwritable_.exchange(true))
    spdlog::warn("kernel cache: {}; compiled kernels are not saved", failed);
}

}  // namespace tenon::cuda
