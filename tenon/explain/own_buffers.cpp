#include "tenon/explain/own_buffers.h"

#include <algorithm>

namespace tenon {

OwnBuffers::OwnBuffers(const Plan& plan, Backend& backend) {
  const std::shared_ptr<Stream> stream = backend.make_stream();
  for (const Buffer& b : plan.buffers) {
    if (b.stored) continue;  // nothing else writes there
    memory_.push_back(backend.allocate(std::max<int64_t>(b.bytes, 1)));
    const std::vector<unsigned char> before(static_cast<size_t>(b.bytes), b.role == BufferRole::State ? 0 : 0xff);
    backend.copy_in(*stream, memory_.back().get(), before.data(), b.bytes);
    bound_[b.name] = memory_.back().get();
  }
}

}  // namespace tenon
