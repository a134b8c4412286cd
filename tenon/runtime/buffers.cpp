#include "tenon/runtime/buffers.h"

#include "tenon/core/error.h"

namespace tenon {

std::shared_ptr<void> Buffers::get(const Buffer& state) {
  const std::lock_guard lock(mutex_);
  auto it = states_.find(state.name);
  if (it == states_.end())
    it = states_.emplace(state.name, State{state.dtype, state.shape, state.bytes, backend_->allocate(state.bytes)})
             .first;
  const State& s = it->second;
  TENON_CHECK(Usage, s.dtype == state.dtype && s.shape == state.shape, state.name)
      << "the state is " << name_of(s.dtype) << s.shape.str() << ", and a plan expects " << name_of(state.dtype)
      << state.shape.str();
  return s.memory;
}

bool Buffers::has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return states_.contains(name);
}

int64_t Buffers::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [name, state] : states_) bytes += state.bytes;
  return bytes;
}

}  // namespace tenon
