// Common code of the CPU backend's launches: binding leaves to memory, lets, scratch, results and their statistics. A
// skeleton's kernel compiles its tapes and requests its weights in its constructor, so that all sizes are known before
// anything is allocated; bind() sets their addresses, then it runs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/bodies.h"
#include "tenon/backend/cpu/launches/statistics.h"
#include "tenon/backend/cpu/tape/tape.h"
#include "tenon/backend/kernel.h"
#include "tenon/backend/weights.h"

namespace tenon::cpu {

/// Threads, and the kernels for the machine's instruction set.
struct Engine {
  ThreadPool pool;
  const TileOps& tile;
  const VecOps& vec;
  explicit Engine(int threads, const TileOps& ops = tile_ops()) : pool(threads), tile(ops), vec(vec_ops(ops.isa)) {}
};

class LaunchKernel : public Kernel {
 public:
  LaunchMemory memory() const final { return {0, scratch_bytes_}; }
  std::span<const WeightRequest> weights() const final { return requests_; }
  void bind(const BufferTable& buffers, std::span<void* const> weights, void* kept) final;
  void run(Stream& stream, void* scratch) final;
  void rebind(const BufferTable& buffers) final;

 protected:
  LaunchKernel(std::shared_ptr<Engine> engine, const Launch& launch, Form form);

  /// Reserves `bytes` of scratch and returns their offset, a multiple of 64.
  int64_t reserve_scratch(int64_t bytes);
  /// Requests memory made from weights; returns its index.
  size_t ask(WeightRequest request);
  /// The requested memory with this index.
  const void* weight(size_t number) const { return weights_[number]; }
  /// Makes workspaces large enough for `tape`, and records its text for TENON_DUMP.
  void use(const Tape& tape);
  /// Compiles what the launch writes, the `form.outputs` with a place, as a tape over the form's domain. Statistics are
  /// computed from what was stored, or from a copy in scratch.
  std::unique_ptr<Tape> compile_results(TapeOptions options);
  /// Compiles the form's statistics directly from their values, without a stored copy.
  void compile_statistics();
  /// Must be called last in a constructor: fixes the layout of the scratch and requests the weights that tapes read.
  void seal();

  virtual void compute(std::byte* scratch) = 0;

  Bases bases() const { return bases_.data(); }
  void* workspace(int thread) const { return scratch_ + workspace_at_ + thread * workspace_bytes_; }
  int threads() const { return engine_->pool.threads(); }
  /// Runs `tape` over `block` of its domain on this thread; its only output is what it stores.
  void run_tape(const Tape& tape, const Block& block, int thread) const;

  std::shared_ptr<Engine> engine_;
  std::string name_;
  Form form_;
  LeafTable leaves_;

 private:
  struct Counted {
    Expr value;  // as the form names it
    Statistics statistics;
  };
  struct LetTape {
    Tape tape;
    int leaf;
  };
  void compile_lets();
  bool in_caller_memory(int leaf) const;
  void compile_statistic(const FormOutput& output, const Expr& source, const Shape& domain);
  Expr stored_copy(const FormOutput& output, std::vector<TapeOutput>& stored);
  Statistics* statistics_of(const Expr& value);
  void place_in_scratch(const Expr& leaf);

  int64_t scratch_bytes_ = 0;
  int64_t workspace_at_ = 0, workspace_bytes_ = 0, statistics_at_ = 0;
  std::vector<LetTape> lets_;
  std::string tapes_;
  std::vector<Counted> counted_;
  std::vector<std::pair<int, int64_t>> in_scratch_;  // leaf, offset
  std::vector<std::pair<int, size_t>> in_weights_;   // leaf, index of the request
  std::vector<WeightRequest> requests_;
  std::vector<const void*> bases_;
  std::vector<void*> weights_;
  std::byte* scratch_ = nullptr;
};

/// Copies a parameter's elements to `dst`, converted to another type.
void copy_weight(const ParamView& from, DType type, void* dst, const VecOps& ops);

using LaunchBodies = Bodies<LaunchKernel, std::shared_ptr<Engine>>;
using RegisterBody = LaunchBodies::Register;

/// Creates the kernel of a launch that has its form, unbound.
inline std::unique_ptr<LaunchKernel> make_kernel(std::shared_ptr<Engine> engine, const Launch& launch) {
  return LaunchBodies::make(std::move(engine), launch);
}

}  // namespace tenon::cpu
