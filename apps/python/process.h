// What a forked child must not destroy.
#pragma once
#include <unistd.h>

#include <memory>

namespace tenon::python {

/// Deletes only in the process that made the object: a forked child has none of the threads that the destructor would
/// join, and the device's memory is not its own.
struct DeleteHere {
  DeleteHere() = default;
  template <class T>
  DeleteHere(const std::default_delete<T>&) {}
  template <class T>
  void operator()(T* object) const {
    if (process == getpid()) delete object;
  }
  pid_t process = getpid();
};
template <class T>
using MadeHere = std::unique_ptr<T, DeleteHere>;

}  // namespace tenon::python
