#include "tenon/backend/cpu/launches/statistics.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {
constexpr int64_t kBlockElements = 65536, kF32Elements = 4096, kMinF32Rows = 8, kMaxF32Rows = 32;
}

Statistics::Statistics(const Expr& value, const Shape& domain, const Shape& seen, LeafTable& leaves, const VecOps& ops)
    : ops_(&ops), samples_(seen[0]), inner_(seen[1]), channels_(seen[2]) {
  TENON_CHECK(Internal, domain.cols() == channels_ && domain.rows() == samples_ * inner_, "statistics")
      << "expected shape " << domain.str() << ", got " << seen.str();
  tape_ = std::make_shared<Tape>(std::array{TapeOutput{value, Expr(), DType::F32}}, domain, leaves, ops);
  f32_rows_ = std::clamp(kF32Elements / ld(), kMinF32Rows, kMaxF32Rows);
  block_rows_ = round_up(std::max<int64_t>(kBlockElements / ld(), 1), f32_rows_);
  blocks_ = div_up(inner_, block_rows_);
}

int64_t Statistics::scratch_bytes(int threads) const {
  return samples_ * blocks_ * sums_bytes() + threads * f32_rows_ * ld() * 4;
}

Statistics::Sums Statistics::sums_of(int64_t block, std::byte* scratch) const {
  double* sum = reinterpret_cast<double*>(scratch + block * sums_bytes());
  return {sum, sum + ld(), reinterpret_cast<float*>(sum + 2 * ld())};
}

int64_t Statistics::rows_of(int64_t block) const {
  return std::min(block_rows_, inner_ - block % blocks_ * block_rows_);
}

void Statistics::run(ThreadPool& pool, Bases bases, FunctionRef<void*(int thread)> workspace,
                     std::byte* scratch) const {
  float* rows = reinterpret_cast<float*>(scratch + samples_ * blocks_ * sums_bytes());
  pool.parallel_for(samples_ * blocks_, [&](int64_t block, int thread) {
    sum_block(block, bases, workspace(thread), rows + thread * f32_rows_ * ld(), sums_of(block, scratch));
  });
  pool.parallel_for(samples_, [&](int64_t sample, int) { finish(bases, scratch, sample); });
}

void Statistics::sum_block(int64_t block, Bases bases, void* workspace, float* rows, const Sums& sums) const {
  const int64_t first = block / blocks_ * inner_ + block % blocks_ * block_rows_, count = rows_of(block);
  std::fill_n(sums.sum, 2 * ld(), 0.0);  // also clears the squares
  for (int64_t r = 0; r < count; r += f32_rows_) {
    TapeCall call;
    call.block = {first + r, std::min(f32_rows_, count - r), 0, channels_};
    call.bases = bases;
    call.workspace = workspace;
    call.rows = rows;
    call.rows_ld = ld();
    tape_->run(call);
    if (r == 0)  // deviations from an infinity would be NaN
      std::transform(rows, rows + ld(), sums.from, [](float x) { return std::isfinite(x) ? x : 0.0f; });
    ops_->column_moments(rows, ld(), call.block.rows, channels_, sums.from, sums.sum, sums.squares);
  }
}

// Combines the blocks of a sample into its first one, as deviations from the first row of the sample.
void Statistics::finish(Bases bases, std::byte* scratch, int64_t sample) const {
  const Sums all = sums_of(sample * blocks_, scratch);
  for (int64_t b = 1; b < blocks_; ++b) {
    const Sums block = sums_of(sample * blocks_ + b, scratch);
    const double count = static_cast<double>(rows_of(b));
    for (int64_t c = 0; c < channels_; ++c) {
      const double apart = static_cast<double>(block.from[c]) - static_cast<double>(all.from[c]);
      all.sum[c] += block.sum[c] + count * apart;
      all.squares[c] += block.squares[c] + apart * (2 * block.sum[c] + count * apart);
    }
  }
  const double n = static_cast<double>(inner_);
  for (const Wanted& w : wanted_) {
    float* out = static_cast<float*>(const_cast<void*>(bases[w.leaf])) + sample * channels_;
    for (int64_t c = 0; c < channels_; ++c) {
      const double shift = all.sum[c] / n, m2 = all.squares[c] - all.sum[c] * shift;
      const double mean = static_cast<double>(all.from[c]) + shift;
      out[c] = static_cast<float>(w.kind->reduce_of_moments(n, mean, m2 < 0 ? 0 : m2));
    }
  }
}

}  // namespace tenon::cpu
