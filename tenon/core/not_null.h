// Pointers that must not be null, and the state of objects that were moved from.
#pragma once
#include <memory>
#include <utility>

#include "tenon/core/error.h"

namespace tenon {

/// The pointer, for an initializer; Error(Usage) about `name` if it is null.
template <class P>
P not_null(P pointer, const char* name) {
  TENON_CHECK(Usage, pointer != nullptr, name) << "expected one, found null";
  return pointer;
}

/// Owns the private state of an object that may be moved. Using the object after that is an Error(Usage).
template <class T>
class OwnState {
 public:
  OwnState(std::unique_ptr<T> state, const char* owner) : state_(std::move(state)), owner_(owner) {}
  T& operator*() const {
    TENON_CHECK(Usage, state_, owner_) << "was moved from and can only be destroyed or assigned to";
    return *state_;
  }
  T* operator->() const { return &**this; }

 private:
  std::unique_ptr<T> state_;
  const char* owner_;
};

}  // namespace tenon
