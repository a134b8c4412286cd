#include "tenon/backend/cpu/tile/gemm_schedule.h"

#include <algorithm>

#include "tenon/backend/cpu/tile/gemm.h"

namespace tenon::cpu {

namespace {
constexpr int64_t kEntriesOfThread = 4;  // shares then differ by at most a quarter
}

GemmSchedule::GemmSchedule(const PackedShape& b, int64_t rows, int64_t batch, int threads) : m(rows) {
  const int64_t row_bytes = b.terms() * kLine, cached = l2_bytes() / 2;
  const bool many = batch >= kEntriesOfThread * threads;
  single_row = !many && m == 1;
  // What is widened from bytes then serves several row tiles, whereas a band of a long K is only one.
  together = !many && (b.bytes_of || m * row_bytes <= cached || m < int64_t{2} * kMaxTileRows * threads);
  // An eighth more than half the L2 cache: B is read once per band, so one band fewer is worth it.
  const int64_t fit = std::max<int64_t>(kMaxTileRows / kRowBlock, cached * 9 / 8 / (kRowBlock * row_bytes));
  const int64_t least = std::max<int64_t>(1, div_up(m / kRowBlock, fit));
  bands = together ? 1 : many ? least : round_up(least, threads);
  plane = round_up(std::max(first_row(1), m - first_row(bands - 1)), 16);
  if (plane % 32 == 0) plane += 16;  // terms a multiple of 4 KiB apart would share the same few cache sets
}

int64_t GemmSchedule::first_row(int64_t band) const {
  const int64_t blocks = m / kRowBlock;
  return band == bands ? m : (band * (blocks / bands) + std::min(band, blocks % bands)) * kRowBlock;
}

}  // namespace tenon::cpu
