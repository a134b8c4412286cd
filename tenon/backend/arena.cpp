#include "tenon/backend/arena.h"

#include <utility>

namespace tenon {

void Arena::reserve(int64_t bytes) {
  if (memory_ && bytes <= bytes_) return;
  if (stream_) stream_->synchronize();
  user_ = nullptr;
  memory_.reset();  // free the old memory before allocating the larger one
  bytes_ = 0;
  memory_ = backend_->allocate(bytes);
  bytes_ = bytes;
}

bool Arena::take(const void* user, const std::shared_ptr<Stream>& stream) {
  if (user_ != user && stream_ && stream_ != stream) stream->wait(*stream_->mark());
  stream_ = stream;
  return std::exchange(user_, user) != user;
}

}  // namespace tenon
