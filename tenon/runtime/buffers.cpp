#include "tenon/runtime/buffers.h"

#include "tenon/core/error.h"

namespace tenon {

std::shared_ptr<void> Buffers::get(const Buffer& state) {
  const std::lock_guard lock(mutex_);
  if (!states_.contains(state.name)) states_[state.name] = {state, backend_->allocate(state.bytes)};
  const auto& [s, memory] = states_[state.name];
  TENON_CHECK(Usage, s.dtype == state.dtype && s.shape == state.shape, state.name)
      << "the state is " << name_of(s.dtype) << s.shape.str() << ", but the plan expects " << name_of(state.dtype)
      << state.shape.str();
  return memory;
}

bool Buffers::has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return states_.contains(name);
}

}  // namespace tenon
