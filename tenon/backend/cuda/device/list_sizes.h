// What stands in front of a list in a kernel's argument, and the list's items. Filled by the host, read by kernels:
// plain layouts only.
#pragma once
#include "tenon/backend/cuda/device/index.h"

namespace tenon::device {

struct ListSizes {
  int32_t items, chunk;  ///< items of the list, elements of a chunk
  uint32_t* found;       ///< of launches that look for something: where they say so
  uint32_t last;         ///< what they say of the list's first item; one less for each behind it
  uint32_t padding;
};

/// V vectors of `count` elements, which begin at `first_chunk` of the launch.
template <int V>
struct ListEntry {
  void* vectors[V];
  int64_t count;
  int32_t first_chunk, wide;
};

}  // namespace tenon::device
