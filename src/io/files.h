// Whole files: reading, hashing, and writing so that a reader sees all of a file or none of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace tenon {

/// The bytes of a regular file; Error(Model) names the path and the reason if it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// read_file of a file that a user named in an argument (a picture, a prompt): Error(Usage), as no model is at fault.
std::string read_argument_file(const std::filesystem::path& path);

/// SHA-256 in lower-case hex.
std::string sha256_hex(std::span<const std::byte> bytes);
/// SHA-256 of a file's content, read in pieces; Error(Model) as read_file.
std::string sha256_file(const std::filesystem::path& path);

enum class Overwrite : bool { No, Yes };

/// A file under construction. Bytes go to a file without a name in the target's folder (with a temporary name where the
/// file system has none such); commit() makes them durable (fsync) and gives them the target's name in one step.
/// Destroyed before commit(), it leaves nothing behind, nor does a process that is killed.
///
/// With Overwrite::No the last step never replaces a file, so that of two processes writing one name exactly one wins
/// and the other gets Error(Usage). Failing system calls (no folder, no permission, full disk) are Error(Internal) with
/// the path and the system's reason.
class AtomicFile {
 public:
  AtomicFile(std::filesystem::path target, Overwrite overwrite);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  void discard() noexcept;
  int name_it();
  [[noreturn]] void fail(const char* action, int error);

  std::filesystem::path target_, temporary_;
  Overwrite overwrite_;
  int fd_ = -1;
};

/// AtomicFile in one call.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes, Overwrite overwrite);

/// Fails early, with the errors that write_file would give later, if `path` exists (and Overwrite::No), is a folder, or
/// its folder is missing or not writable. A run of minutes should not end in such an error.
void check_output(const std::filesystem::path& path, Overwrite overwrite);

}  // namespace tenon
