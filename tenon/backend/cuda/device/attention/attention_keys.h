// Optional inputs and outputs of attention: the number of keys, read from memory, and the log-sum-exps of the softmax.
#pragma once
#include "tenon/backend/cuda/device/products/core_sizes.h"
#include "tenon/backend/cuda/device/vocabulary.h"

namespace tenon::device {

/// The number of keys is in the sizes.
struct AllKeys {
  static constexpr bool kGiven = false;
};
/// Log-sum-exps are not wanted.
struct NoLse {
  static constexpr bool kWanted = false;
};
/// Paged keys or values (attention/paged_heads.h): place(p, entry, token) looks up a token's position in the pool, and
/// row_at(p, place, head) is its row there.
template <class Operand>
concept InPages = requires {
  Operand::kPage;
};

/// The sizes for blocks of batch entry `batch`: with the actual number of keys if Keys reads it from memory, which
/// happens only after the predecessor's end.
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
