// Files that appear whole or not at all.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace tenon {

enum class Overwrite : bool { No, Yes };

/// A file under construction. Bytes go to a file without a name in the target's folder (with a temporary name where the
/// file system has none such); commit() makes them durable (fsync) and gives them the target's name in one step.
/// Destroyed before commit(), it leaves nothing behind, nor does a process that is killed, but for the moment in which
/// a file with a temporary name is renamed: such a name (.tenon-<process>-<number>.tmp) is swept by whoever writes into
/// that folder a minute later.
///
/// With Overwrite::No the last step never replaces a file, so that of two processes writing one name exactly one wins
/// and the other gets Error(Usage). With Overwrite::Yes the file that a link names is replaced and the link stays, and
/// the permissions of what is replaced stay; what is no regular file (a FIFO, a device) is refused. Failing system
/// calls (no folder, no permission, full disk) are Error(Internal) with the path and the system's reason.
class AtomicFile {
 public:
  AtomicFile(std::filesystem::path target, Overwrite overwrite);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// What was written is on disk, still without its name. Of files that belong together each is brought so far before
  /// the first one is committed.
  void sync();
  void commit();

 private:
  void discard() noexcept;
  bool take_temporary_name();
  int name_it();
  [[noreturn]] void fail(const char* action, int error);

  std::filesystem::path name_, target_, temporary_;  // as it was given; behind links; while there is one
  Overwrite overwrite_;
  int fd_ = -1;
};

inline constexpr const char* kExistsHint = "choose another name or let it be overwritten";

/// AtomicFile in one call.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes, Overwrite overwrite);

/// Fails early, with the errors that write_file would give later, if `path` exists (and Overwrite::No), is a folder or
/// no regular file, or its folder is missing or not writable. A run of minutes should not end in such an error. `hint`:
/// what the caller's user can do about a file that exists.
void check_output(const std::filesystem::path& path, Overwrite overwrite, const std::string& hint = kExistsHint);

/// Where writing to `path` would put the file: an absolute path behind all links, equal for two names of one file.
/// Error(Usage) for a loop of links.
std::filesystem::path output_place(const std::filesystem::path& path);

/// "No such file or directory, errno 2"
std::string system_reason(int error);

}  // namespace tenon
