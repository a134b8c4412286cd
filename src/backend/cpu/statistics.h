// Sums and sums of squares per sample and channel of a value seen as [samples, inner, channels]. The rows are cut into
// blocks by shape alone; a block is summed in f32 over few rows at a time and in f64 beyond, and blocks are added in
// order, so the result is the same to the bit for any number of threads.
#pragma once
#include <memory>

#include "tenon/backend/cpu/tape/tape.h"

namespace tenon::cpu {

class Statistics {
 public:
  /// `value`: over a domain of samples * inner rows of `channels`.
  Statistics(const Expr& value, const Shape& domain, const Shape& seen, LeafTable& leaves, const VecOps& ops);

  /// Asks for a sum or a sum of squares to be written to f32 [samples, channels] at `leaf`.
  void add(const NodeType* kind, int leaf);
  const Tape& tape() const { return *tape_; }
  int64_t scratch_bytes(int threads) const;
  /// `workspace(thread)` has the tape's workspace.
  void run(ThreadPool& pool, Bases bases, FunctionRef<void*(int thread)> workspace, std::byte* scratch) const;

 private:
  void sum_block(int64_t block, Bases bases, void* workspace, float* rows, double* sums) const;
  void finish(Bases bases, double* sums, int64_t sample) const;
  int64_t ld() const { return round_up(channels_, 16); }

  std::shared_ptr<const Tape> tape_;
  const VecOps* ops_;
  int64_t samples_, inner_, channels_;
  int64_t block_rows_, blocks_, step_rows_;  // rows of a block, blocks a sample, rows summed in f32
  std::vector<int> sums_, squares_;          // leaves
};

}  // namespace tenon::cpu
