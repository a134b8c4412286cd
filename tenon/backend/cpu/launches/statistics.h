// Moments (count, mean, sum of squared deviations) per sample and channel of a value seen as [samples, inner,
// channels], and the reductions that follow from them. Rows are split into blocks by shape alone. A block sums
// deviations from its first row, a few rows at a time in f32, then in f64; blocks are combined in order. So the result
// has the same bits for any number of threads, and is equally accurate for any mean.
#pragma once
#include <memory>

#include "tenon/backend/cpu/tape/tape.h"

namespace tenon::cpu {

class Statistics {
 public:
  /// `value` is over a domain of samples * inner rows of `channels`.
  Statistics(const Expr& value, const Shape& domain, const Shape& seen, LeafTable& leaves, const VecOps& ops);

  /// Requests a reduction (with reduce_of_moments), written to f32 [samples, channels] at `leaf`.
  void add(const NodeType* kind, int leaf) { wanted_.push_back({kind, leaf}); }
  const Tape& tape() const { return *tape_; }
  int64_t scratch_bytes(int threads) const;
  /// `workspace(thread)` must return the tape's workspace.
  void run(ThreadPool& pool, Bases bases, FunctionRef<void*(int thread)> workspace, std::byte* scratch) const;

 private:
  // A block's sums per channel: of deviations from `from`, its first row, and of their squares.
  struct Sums {
    double *sum, *squares;
    float* from;
  };
  struct Wanted {
    const NodeType* kind;
    int leaf;
  };
  int64_t sums_bytes() const { return ld() * (2 * 8 + 4); }
  Sums sums_of(int64_t block, std::byte* scratch) const;
  int64_t rows_of(int64_t block) const;
  void sum_block(int64_t block, Bases bases, void* workspace, float* rows, const Sums& sums) const;
  void finish(Bases bases, std::byte* scratch, int64_t sample) const;
  int64_t ld() const { return round_up(channels_, 16); }

  std::shared_ptr<const Tape> tape_;
  const VecOps* ops_;
  int64_t samples_, inner_, channels_;
  int64_t block_rows_, blocks_, f32_rows_;  // rows per block, blocks per sample, rows summed in f32
  std::vector<Wanted> wanted_;
};

}  // namespace tenon::cpu
