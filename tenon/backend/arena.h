// Memory that several users take in turn.
#pragma once
#include <cstddef>
#include <memory>

#include "tenon/backend/backend.h"

namespace tenon {

/// Temporaries of executables that run one at a time, in one allocation as large as the largest of them. One thread at
/// a time.
class Arena {
 public:
  explicit Arena(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  const std::shared_ptr<Backend>& backend() const { return backend_; }
  /// Offset at which the next of several items in one allocation begins.
  static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }
  int64_t bytes() const { return bytes_; }
  std::byte* memory() const { return static_cast<std::byte*>(memory_.get()); }
  /// Grows the memory to at least `bytes`; it moves if it was smaller. Waits for the last user. Throws Error(Memory).
  void reserve(int64_t bytes);
  /// Hands the memory to `user`, ordered after the last user's stream. False if `user` had it already.
  bool take(const void* user, const std::shared_ptr<Stream>& stream);
  /// `user` of the arena, if there is one, is no more: whoever takes it next is another, even at the same address.
  static void leave(const std::shared_ptr<Arena>& arena, const void* user) {
    if (arena && arena->user_ == user) arena->user_ = arena.get();
  }
  bool had_last(const void* user) const { return user_ == user; }

 private:
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
  const void* user_ = nullptr;
  std::shared_ptr<Stream> stream_;  ///< of the last user
};

}  // namespace tenon
