#include "tenon/backend/cpu/tile/gemm_schedule.h"

#include "tenon/backend/cpu/tile/product.h"

namespace tenon::cpu {

namespace {
constexpr int64_t kEntriesOfThread = 4;  // shares then differ by at most a quarter
// In parts: rows that columns serve each time they are read. Fewer need no parts if all of their K fits the cache.
constexpr int64_t kMostRows = 384, kEnoughRows = 160;
constexpr int64_t kTaskPanels = 32 * kGroupPanels;  // sums of a task then take 3 MB
}  // namespace

GemmSchedule::GemmSchedule(const PackedShape& b, int64_t rows, int64_t batch, int threads, bool outruns_memory)
    : m(rows) {
  const int64_t row_bytes = b.terms() * kLine, cached = l2_bytes() / 2;
  const bool many = batch >= kEntriesOfThread * threads;
  single_row = !many && m == 1;
  in_parts = outruns_memory && b.type == DType::BF16 && !many && m >= int64_t{2} * kMaxTileRows &&
             std::min(m, kEnoughRows) * row_bytes > cached && b.bytes() > l2_bytes();
  // Panels that are made when read then serve several row tiles, whereas a band of a long K is only one.
  together =
      !many && !in_parts && (b.made_when_read() || m * row_bytes <= cached || m < int64_t{2} * kMaxTileRows * threads);
  // An eighth more than half the L2 cache: B is read once per band, so one band fewer is worth it.
  const int64_t fit = std::max<int64_t>(kMaxTileRows / kRowBlock, cached * 9 / 8 / (kRowBlock * row_bytes));
  const int64_t least = std::max<int64_t>(1, div_up(m / kRowBlock, fit));
  bands = together   ? 1
          : in_parts ? div_up(m / kRowBlock, kMostRows / kRowBlock)
          : many     ? least
                     : round_up(least, threads);
  plane = round_up(longest_band(), 16);
  if (plane % 32 == 0) plane += 16;  // terms a multiple of 4 KiB apart would share the same few cache sets
  if (!in_parts) return;
  part_terms = div_up(b.terms(), div_up(b.terms(), std::max<int64_t>(8, cached / (longest_band() * kLine))));
  const int64_t groups = column_groups(b);
  tasks = std::min(groups, round_up(div_up(groups * kGroupPanels * b.lanes, kTaskPanels), threads));
}

int64_t GemmSchedule::first_row(int64_t band) const {
  const int64_t blocks = m / kRowBlock;
  return band == bands ? m : (band * (blocks / bands) + std::min(band, blocks % bands)) * kRowBlock;
}

}  // namespace tenon::cpu
