// Files that appear whole or not at all.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace tenon {

enum class Overwrite : bool { No, Yes };

/// A file under construction. Bytes go to an unnamed file in the target's folder (or one with a temporary name, if the
/// file system has no unnamed files); commit() makes them durable (fsync) and gives the file the target's name in one
/// step. Destroyed before commit(), it leaves nothing behind; neither does a killed process, except while a file with a
/// temporary name is being renamed: such a file (.tenon-<process>-<number>.tmp) is removed, a minute or more later, by
/// the next writer that needs a temporary name in that folder.
///
/// With Overwrite::No the last step never replaces a file: of two processes writing the same name, exactly one wins and
/// the other gets Error(Usage). With Overwrite::Yes the target of a symbolic link is replaced and the link stays, as do
/// the permissions of the replaced file; anything but a regular file (a FIFO, a device) is refused. Failing system
/// calls (no folder, no permission, full disk) throw Error(Internal) with the path and the system's reason.
class AtomicFile {
 public:
  AtomicFile(std::filesystem::path target, Overwrite overwrite);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Flushes what was written to disk, without naming the file yet. For files that belong together, call it on all of
  /// them before committing the first.
  void sync();
  void commit();

 private:
  void discard() noexcept;
  bool take_temporary_name();
  int name_it();
  [[noreturn]] void fail(const char* action, int error);

  std::filesystem::path name_, target_, temporary_;  // as given; with links resolved; while it exists
  Overwrite overwrite_;
  int fd_ = -1;
};

inline constexpr const char* kExistsHint = "choose another name or allow overwriting";

/// Writes a whole file with AtomicFile.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes, Overwrite overwrite);

/// Fails early, with the errors that write_file would throw later, if `path` exists (and Overwrite::No), is a folder or
/// not a regular file, or its folder is missing or not writable: a run of minutes should not end in such an error.
/// `hint`: what the user can do about an existing file.
void check_output(const std::filesystem::path& path, Overwrite overwrite, const std::string& hint = kExistsHint);

/// Where writing to `path` would put the file: an absolute path with links resolved, equal for two names of one file.
/// Throws Error(Usage) for a loop of links.
std::filesystem::path output_place(const std::filesystem::path& path);

/// "No such file or directory, errno 2"
std::string system_reason(int error);

}  // namespace tenon
