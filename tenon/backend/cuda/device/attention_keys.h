// What attention may be asked for besides: how many keys there are, as a number in memory, and the logarithms of the
// sums that its softmax divides by.
#pragma once
#include "tenon/backend/cuda/device/core_sizes.h"
#include "tenon/backend/cuda/device/vocabulary.h"

namespace tenon::device {

/// The number of keys is in the sizes.
struct AllKeys {
  static constexpr bool kGiven = false;
};
/// These logarithms are not wanted.
struct NoLse {
  static constexpr bool kWanted = false;
};
/// Keys or values whose tokens lie in pages (attention/paged_heads.h): place(p, entry, token) looks up where one is in
/// the pool, and row_at(p, place, head) is its row there.
template <class Operand>
concept InPages = requires {
  Operand::kPage;
};

/// The sizes as a block of batch entry `batch` sees them: with the keys that there are, where Keys has them in memory.
/// Nothing is read before the predecessor's end.
template <class Keys, class Params>
DEV AttentionSizes sizes_of_entry(const Params& p, int batch) {
  AttentionSizes s = p.sizes;
  if constexpr (Keys::kGiven) {
    griddep_wait();
    const int there = Keys::count(p, batch);
    s.capacity = s.keys;
    s.keys = there < 0 ? 0 : there < s.keys ? there : s.keys;
  }
  return s;
}

}  // namespace tenon::device
