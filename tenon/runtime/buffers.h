// States: memory that outlives runs and executables.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tenon/backend/backend.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// States by name, on one backend: executables over one of these share what they name alike. Calls may come from
/// several threads; who runs first where several executables write one state is for their streams to say
/// (Executable::wait_for).
class Buffers {
 public:
  explicit Buffers(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  const std::shared_ptr<Backend>& backend() const { return backend_; }
  /// The memory of a plan's state, zeros when it is asked for first. Error(Usage) if there is one of this name with
  /// another type or shape, Error(Memory).
  std::shared_ptr<void> get(const Buffer& state);
  bool has(const std::string& name) const;
  /// Of all states that are here.
  int64_t bytes() const;

 private:
  std::shared_ptr<Backend> backend_;
  mutable std::mutex mutex_;
  std::map<std::string, std::pair<Buffer, std::shared_ptr<void>>> states_;  // by name: what it is, and its memory
};

}  // namespace tenon
