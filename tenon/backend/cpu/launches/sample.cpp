// The sample skeleton: a tape computes a row of scores; a token and its log-probability go to the results.
#include "tenon/backend/cpu/launches/anchor_kernel.h"
#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {

class SampleKernel : public AnchorKernel {
 public:
  SampleKernel(std::shared_ptr<Engine> engine, const Launch& launch, Form form)
      : AnchorKernel(std::move(engine), launch, std::move(form)),
        rows_(form_.holes[0].shape()[0]),
        tokens_(form_.holes[0].shape()[1]) {
    for (const Expr& hole : form_.holes) {
      const TapeOutput value{hole, Expr(), DType::F32};
      holes_.push_back(std::make_unique<Tape>(std::array{value}, hole.shape(), leaves_, engine_->vec));
      use(*holes_.back());
    }
    compile_epilogue(0);
    counters_at_ = reserve_scratch(round_up(rows_, 16) * 4);
    row_floats_ = round_up(tokens_, 16) + 2 * 16;
    rows_at_ = reserve_scratch(threads() * row_floats_ * 4);
    seal();
  }

  std::string describe() const override {
    return summary({{"scores", "tape of " + std::to_string(holes_[0]->length())}});
  }

 private:
  void fill(size_t hole, int64_t row, int64_t columns, float* to, int thread) const {
    TapeCall call;
    call.block = {row, 1, 0, columns};
    call.bases = bases();
    call.workspace = workspace(thread);
    call.rows = to;
    call.rows_ld = round_up(columns, 16);
    holes_[hole]->run(call);
  }

  void compute(std::byte* scratch) override {
    if (rows_ == 0) return;
    float* counters = reinterpret_cast<float*>(scratch + counters_at_);
    fill(3, 0, rows_, counters, 0);
    engine_->pool.parallel_for(rows_, [&](int64_t row, int thread) {
      float* rule = reinterpret_cast<float*>(scratch + rows_at_) + thread * row_floats_;
      float *seed = rule + 16, *scores = seed + 16;
      fill(0, row, tokens_, scores, thread);
      fill(1, row, 4, rule, thread);
      fill(2, row, 4, seed, thread);
      const std::span<const float> all(scores, static_cast<size_t>(tokens_));
      const DrawnToken t = nodes::Sample::draw_row<float>(all, rule, seed, counters[row]);
      alignas(64) float made[2][16] = {};  // two lanes, or one lane of two columns
      made[0][0] = static_cast<float>(t.id);
      made[0][1] = made[1][0] = static_cast<float>(t.log_probability);
      float* const lanes[2] = {made[0], made[1]};
      write({row, 1, 0, 2 / form_.lanes}, lanes, 16, thread);
    });
  }

  int64_t rows_, tokens_, row_floats_ = 0, rows_at_ = 0, counters_at_ = 0;
  std::vector<std::unique_ptr<Tape>> holes_;
};

const RegisterBody kRegisteredSample("sample", &LaunchBodies::body<SampleKernel>);

}  // namespace
}  // namespace tenon::cpu
