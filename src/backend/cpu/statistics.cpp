#include "tenon/backend/cpu/statistics.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {
constexpr int64_t kBlockElements = 65536, kStepElements = 4096;
}

Statistics::Statistics(const Expr& value, const Shape& domain, const Shape& seen, LeafTable& leaves, const VecOps& ops)
    : ops_(&ops), samples_(seen[0]), inner_(seen[1]), channels_(seen[2]) {
  TENON_CHECK(Internal, domain.cols() == channels_ && domain.rows() == samples_ * inner_, "statistics")
      << domain.str() << " is not " << seen.str();
  tape_ = std::make_shared<Tape>(std::array{TapeOutput{value, Expr(), DType::F32}}, domain, leaves, ops);
  step_rows_ = std::clamp<int64_t>(kStepElements / ld(), 1, 32);
  block_rows_ = round_up(std::max<int64_t>(kBlockElements / ld(), 1), step_rows_);
  blocks_ = div_up(inner_, block_rows_);
}

void Statistics::add(const NodeType* kind, int leaf) {
  (kind == &node_type<nodes::Sum>() ? sums_ : squares_).push_back(leaf);
}

int64_t Statistics::scratch_bytes(int threads) const {
  return samples_ * blocks_ * 2 * ld() * 8 + threads * (step_rows_ + 2) * ld() * 4;
}

void Statistics::run(ThreadPool& pool, Bases bases, FunctionRef<void*(int thread)> workspace,
                     std::byte* scratch) const {
  double* sums = reinterpret_cast<double*>(scratch);
  float* rows = reinterpret_cast<float*>(scratch + samples_ * blocks_ * 2 * ld() * 8);
  pool.parallel_for(samples_ * blocks_, [&](int64_t block, int thread) {
    sum_block(block, bases, workspace(thread), rows + thread * (step_rows_ + 2) * ld(), sums + block * 2 * ld());
  });
  pool.parallel_for(samples_, [&](int64_t sample, int) { finish(bases, sums + sample * blocks_ * 2 * ld(), sample); });
}

void Statistics::sum_block(int64_t block, Bases bases, void* workspace, float* rows, double* sums) const {
  const int64_t width = ld();
  const int64_t first = block % blocks_ * block_rows_, last = std::min(first + block_rows_, inner_);
  float* step = rows + step_rows_ * width;
  std::fill_n(sums, 2 * width, 0.0);
  for (int64_t r = first; r < last; r += step_rows_) {
    TapeCall call;
    call.block = {block / blocks_ * inner_ + r, std::min(step_rows_, last - r), 0, channels_};
    call.bases = bases;
    call.workspace = workspace;
    call.rows = rows;
    call.rows_ld = width;
    tape_->run(call);
    std::fill_n(step, 2 * width, 0.0f);
    ops_->column_sums(rows, width, call.block.rows, channels_, step, step + width);
    for (int64_t c = 0; c < 2 * width; ++c) sums[c] += static_cast<double>(step[c]);
  }
}

void Statistics::finish(Bases bases, double* sums, int64_t sample) const {
  const int64_t width = 2 * ld();
  for (int64_t b = 1; b < blocks_; ++b)
    for (int64_t c = 0; c < width; ++c) sums[c] += sums[b * width + c];
  const auto write = [&](int leaf, const double* totals) {
    float* out = static_cast<float*>(const_cast<void*>(bases[leaf])) + sample * channels_;
    for (int64_t c = 0; c < channels_; ++c) out[c] = static_cast<float>(totals[c]);
  };
  for (int leaf : sums_) write(leaf, sums);
  for (int leaf : squares_) write(leaf, sums + ld());
}

}  // namespace tenon::cpu
