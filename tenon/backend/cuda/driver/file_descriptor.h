// An open file that is closed by its owner's destructor.
#pragma once
#include <unistd.h>

namespace tenon::cuda {

class FileDescriptor {
 public:
  /// Result of open(); negative: none.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace tenon::cuda
