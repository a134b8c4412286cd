// Random numbers determined by a key and a counter, on the host and in kernels.
#pragma once
#include "tenon/core/hd.h"
#ifndef TENON_DEVICE
#include <array>
#endif

namespace tenon {

/// Philox 4x32 with ten rounds (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011): 128 bits determined
/// by a key and a counter, so that numbers can be drawn in any order.
HD inline void philox_words(uint64_t key, uint64_t counter, uint64_t stream, uint32_t (&words)[4]) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32),
           c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * c0, b = uint64_t{0xcd9e8d57} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9e3779b9;
    k1 += 0xbb67ae85;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

/// A uniform number in [0, 1), from 53 of the bits.
HD inline double philox_uniform(uint64_t key, uint64_t counter) {
  uint32_t words[4];
  philox_words(key, counter, 0, words);
  return static_cast<double>(((uint64_t{words[0]} << 32) | words[1]) >> 11) * 0x1p-53;
}

#ifndef TENON_DEVICE
inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter, uint64_t stream = 0) {
  uint32_t words[4];
  philox_words(key, counter, stream, words);
  return {words[0], words[1], words[2], words[3]};
}
#endif

}  // namespace tenon
