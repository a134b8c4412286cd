// What map and rows share: a tape over rows in parallel.
#pragma once
#include <algorithm>

#include "tenon/backend/cpu/launches/launch_kernel.h"

namespace tenon::cpu {

class TapeKernel : public LaunchKernel {
 public:
  TapeKernel(std::shared_ptr<Engine> engine, const Launch& launch, Form form)
      : LaunchKernel(std::move(engine), launch, std::move(form)) {
    TapeOptions options;
    options.collapse = true;
    tape_ = compile_results(options);
    task_cols_ = tape_->reduces_rows() ? tape_->cols() : std::min(tape_->cols(), kTaskElements);
    task_rows_ = std::max<int64_t>(kTaskElements / std::max<int64_t>(task_cols_, 1), 1);
    task_rows_ = round_up(task_rows_, tape_->rows_at_once());
    seal();
  }

  std::string describe() const override {
    return std::string(engine_->vec.name) + " tape of " + std::to_string(tape_->length()) + ", rows of " +
           std::to_string(tape_->cols());
  }

 private:
  void compute(std::byte*) override {
    if (tape_->rows() == 0 || tape_->cols() == 0) return;
    const int64_t across = div_up(tape_->cols(), task_cols_), down = div_up(tape_->rows(), task_rows_);
    engine_->pool.parallel_for(across * down, [&](int64_t task, int thread) {
      const int64_t row = task / across * task_rows_, col = task % across * task_cols_;
      run_tape(*tape_, {row, std::min(task_rows_, tape_->rows() - row), col, std::min(task_cols_, tape_->cols() - col)},
               thread);
    });
  }

  // Elements per task: enough to hide its start-up, few enough to distribute.
  static constexpr int64_t kTaskElements = 32768;

  std::unique_ptr<Tape> tape_;
  int64_t task_rows_ = 1, task_cols_ = 1;
};

}  // namespace tenon::cpu
