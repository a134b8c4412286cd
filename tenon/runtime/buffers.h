// States: memory that outlives runs and executables.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tenon/backend/backend.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// States by name on one backend: executables that use the same Buffers share states of the same name. Thread-safe. If
/// several executables write one state, the order of their runs is up to their streams (Executable::wait_for).
class Buffers {
 public:
  explicit Buffers(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  const std::shared_ptr<Backend>& backend() const { return backend_; }
  /// The memory of a plan's state, zeroed when first requested. Throws Error(Usage) if a state of this name has another
  /// type or shape, and Error(Memory).
  std::shared_ptr<void> get(const Buffer& state);
  bool has(const std::string& name) const;

 private:
  std::shared_ptr<Backend> backend_;
  mutable std::mutex mutex_;
  std::map<std::string, std::pair<Buffer, std::shared_ptr<void>>> states_;  // name -> its description and memory
};

}  // namespace tenon
