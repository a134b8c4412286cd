// Memory that is used in turn.
#pragma once
#include <cstddef>
#include <memory>

#include "tenon/backend/backend.h"

namespace tenon {

/// Temporaries of executables that run one at a time, all in one place: as large as the largest of them. One thread at
/// a time.
class Arena {
 public:
  explicit Arena(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  /// Where the next of several things that lie in one memory begins.
  static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }
  int64_t bytes() const { return bytes_; }
  std::byte* memory() const { return static_cast<std::byte*>(memory_.get()); }
  /// At least as many bytes from now on, elsewhere if there were fewer. Waits for who had it last. Error(Memory).
  void reserve(int64_t bytes);
  /// `user` has it from now on, behind what is on the last one's stream. False if it had it already.
  bool take(const void* user, const std::shared_ptr<Stream>& stream);
  bool had_last(const void* user) const { return user_ == user; }

 private:
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
  const void* user_ = nullptr;
  std::shared_ptr<Stream> stream_;  ///< of the last one
};

}  // namespace tenon
