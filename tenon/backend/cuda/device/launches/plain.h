// The start of kernels without tensor cores: copies of small weights to shared memory begin before the predecessor has
// ended.
#pragma once
#include "tenon/backend/cuda/device/elements.h"

namespace tenon::device {

/// The first element at byte `at` of shared memory: a weight, or a let.
template <class T>
DEV T* in_shared(int at) {
  return reinterpret_cast<T*>(shared_memory() + at);
}

/// Copies `bytes` from `from` to byte `at` of shared memory, which must have room up to the next multiple of 16.
template <int threads>
DEV void copy_constant(int at, const void* from, int bytes) {
  const uint32_t to = shared_address(shared_memory() + at);
  const unsigned char* source = static_cast<const unsigned char*>(from);
  NO_UNROLL for (int i = thread_index() * 16; i < bytes; i += threads * 16)
      cp_async16(to + i, source + i, bytes - i < 16 ? bytes - i : 16);
}

/// No weights in shared memory.
struct NoConstants {
  template <class Params>
  DEV static void copy(const Params&) {}
  DEV static void wait() {}
};

/// After this, other kernels' results may be read, and the weights after Constants::wait(), which all threads of the
/// block call. Constants: copy(p), by copy_constant, and wait().
template <class Constants, class Params>
DEV void begin_loads(const Params& p) {
  Constants::copy(p);
  griddep_wait();
  griddep_launch();
}

/// The same, with the weights ready.
template <class Constants, class Params>
DEV void begin_plain(const Params& p) {
  begin_loads<Constants>(p);
  Constants::wait();
}

}  // namespace tenon::device
