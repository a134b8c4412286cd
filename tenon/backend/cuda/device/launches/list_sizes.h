// The start of a kernel's argument that holds a list, and the list's items. Filled by the host, read by kernels: plain
// layouts only.
#pragma once
#include "tenon/backend/cuda/device/index.h"

namespace tenon::device {

struct ListSizes {
  int32_t items, chunk;  ///< items in the list, elements per chunk
  uint32_t* found;       ///< where kernels that look for something report it
  uint32_t last;         ///< the value reported for the list's first item; one less for each later item
  uint32_t padding;
};

/// V vectors of `count` elements, whose first chunk is chunk `first_chunk` of the call.
template <int V>
struct ListEntry {
  void* vectors[V];
  int64_t count;
  int32_t first_chunk, wide;
};

}  // namespace tenon::device
