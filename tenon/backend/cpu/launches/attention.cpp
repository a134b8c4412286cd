// The attention skeleton: heads of q, k and v are read in place or through a tape; rows of a head go to the results.
#include "tenon/backend/cpu/tile/attention.h"

#include <cmath>

#include "tenon/backend/attention_scale.h"
#include "tenon/backend/cpu/launches/anchor_kernel.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {

// Rows of an operand [batch, heads, rows, width], head by head.
class HeadHole {
 public:
  /// `paged`: whether it may be read page by page. Not q: if there is one query per head, heads are one page's rows.
  HeadHole(const Expr& hole, bool paged, DType tiles, LeafTable& leaves, const VecOps& ops) : shape_(hole.shape()) {
    const Expr value = packed_value(hole, tiles);
    if (kernels_read(value.dtype())) {
      memory_ = strided(value, leaves);
      if (!memory_ && paged) pages_ = strided_pages(value, 2, leaves);
      if (pages_ && (pages_->page % kHeadRows == 0 || pages_->page == shape_[2])) memory_ = *pages_;
    }
    if (memory_ && memory_->stride[3] != 1 && shape_[3] != 1) memory_.reset();
    type_ = value.dtype();
    if (!memory_) tape_ = std::make_unique<RowHole>(hole, tiles, leaves, ops);
  }

  const RowHole* rows() const { return tape_.get(); }
  const Tape* tape() const { return tape_ ? tape_->tape() : nullptr; }

  /// `fill`: the tape of this hole.
  HeadSource source(Bases bases, HeadRowsFn fill) const {
    HeadSource s;
    if (memory_) {
      s.data = static_cast<const std::byte*>(bases[memory_->leaf]) + memory_->offset * size_of(type_);
      s.type = type_;
      s.batch_stride = memory_->stride[0];
      s.head_stride = memory_->stride[1];
      s.ld = memory_->stride[2];
      if (pages_) s.pages = pages(bases);
    } else if (tape_->data(bases)) {
      s.data = tape_->data(bases);
      s.type = tape_->type();
      s.ld = tape_->ld();
      s.head_stride = shape_[2] * s.ld;
      s.batch_stride = shape_[1] * s.head_stride;
    } else {
      s.rows = fill;
    }
    return s;
  }
  void fill(const HeadRange& range, float* dst, int64_t ld, Bases bases, void* workspace) const {
    tape_->fill((range.b * shape_[1] + range.h) * shape_[2] + range.row0, range.rows, dst, ld, bases, workspace);
  }
  std::string describe() const { return tape_ ? tape_->describe() : pages_ ? "pages" : "memory"; }

 private:
  HeadPages pages(Bases bases) const {
    const Strided& n = pages_->numbers;
    return {.rows = pages_->page,
            .count = pages_->pages,
            .page_stride = pages_->page_stride,
            .numbers = static_cast<const std::byte*>(bases[n.leaf]) + n.offset * size_of(pages_->number_type),
            .type = pages_->number_type,
            .batch_stride = n.stride[0],
            .head_stride = n.stride[1],
            .stride = n.stride[2]};
  }

  Shape shape_;
  std::optional<Strided> memory_;
  std::optional<StridedPages> pages_;  // memory_, in pages
  DType type_;
  std::unique_ptr<RowHole> tape_;
};

class AttentionKernel : public AnchorKernel {
 public:
  AttentionKernel(std::shared_ptr<Engine> engine, const Launch& launch, Form form)
      : AnchorKernel(std::move(engine), launch, std::move(form)) {
    const Shape &q = form_.holes[0].shape(), &k = form_.holes[1].shape();
    shape_.batch = q[0];
    shape_.heads = q[1];
    shape_.kv_heads = k[1];
    shape_.sq = q[2];
    shape_.sk = k[2];
    shape_.d = q[3];
    shape_.scale = static_cast<float>(form_.anchor->attrs.nums[0]);
    // The kernels' running maximum needs a positive scale, which leaves the score of hidden keys the lowest.
    const bool tiny = std::abs(shape_.scale) < kLeastAttentionScale;
    if (tiny || shape_.scale < 0) {
      form_.holes[0] = form_.holes[0] * (tiny ? form_.anchor->attrs.nums[0] : -1.0);
      shape_.scale = tiny ? 1 : -shape_.scale;
    }
    shape_.causal = form_.anchor->attrs.ints[0] != 0;
    shape_.type = tiles_;
    for (size_t i = 0; i < 3; ++i) {
      holes_.emplace_back(form_.holes[i], i > 0, tiles_, leaves_, engine_->vec);
      if (holes_.back().tape()) use(*holes_.back().tape());
    }
    if (form_.holes.size() > 3) {  // integers are not read in place
      numbers_ = form_.holes[3].shape().numel();
      keys_ = std::make_unique<RowHole>(form_.holes[3], DType::F32, leaves_, engine_->vec);
      use(*keys_->tape());
      keys_at_ = reserve_scratch(round_up(numbers_, 16) * 4);
    }
    compile_epilogue(0);
    for (const FormOutput& o : form_.outputs)
      if (o.companion) lse_ = leaves_.add(o.place);
    driver_at_ = reserve_scratch(attention_scratch_bytes(shape_, threads()));
    seal();
  }

  std::string describe() const override {
    return summary({{"q", holes_[0].describe()}, {"k", holes_[1].describe()}, {"v", holes_[2].describe()}});
  }

 private:
  void compute(std::byte* scratch) override {
    const auto filler = [this](size_t i) {
      return [this, i](int64_t b, int64_t h, int64_t row0, int64_t rows, float* dst, int64_t ld, int thread) {
        holes_[i].fill({b, h, row0, rows}, dst, ld, bases(), workspace(thread));
      };
    };
    const auto q = filler(0), k = filler(1), v = filler(2);
    AttentionArgs args;
    args.shape = shape_;
    args.q = holes_[0].source(bases(), q);
    args.k = holes_[1].source(bases(), k);
    args.v = holes_[2].source(bases(), v);
    const auto out = [this](int64_t b, int64_t h, int64_t row0, int64_t rows, float* o, int64_t ld, int thread) {
      float* acc[1] = {o};
      write({(b * shape_.heads + h) * shape_.sq + row0, rows, 0, shape_.d}, acc, ld, thread);
    };
    args.out = out;
    if (lse_ >= 0) args.lse = static_cast<float*>(const_cast<void*>(bases()[lse_]));
    if (keys_) args.keys = keys_of_batch(reinterpret_cast<float*>(scratch + keys_at_));
    attention(engine_->pool, engine_->tile, args, scratch + driver_at_);
  }

  std::span<const int64_t> keys_of_batch(float* row) {
    keys_->fill(0, 1, row, round_up(numbers_, 16), bases(), workspace(0));
    keys_of_.resize(static_cast<size_t>(shape_.batch));
    for (int64_t b = 0; b < shape_.batch; ++b) {
      const float keys = row[numbers_ == 1 ? 0 : b];
      TENON_CHECK(Numeric, keys >= 0 && keys <= static_cast<float>(shape_.sk), name_)
          << keys << " keys, expected 0.." << shape_.sk;
      keys_of_[static_cast<size_t>(b)] = static_cast<int64_t>(keys);
    }
    return keys_of_;
  }

  AttentionShape shape_;
  int lse_ = -1;  // the leaf of the second result
  std::vector<HeadHole> holes_;
  std::unique_ptr<RowHole> keys_;  // how many keys there are, if that is an operand
  std::vector<int64_t> keys_of_;   // of each batch entry
  int64_t numbers_ = 0, keys_at_ = 0;
  int64_t driver_at_ = 0;
};

const RegisterBody kRegisteredAttention("attention", &LaunchBodies::body<AttentionKernel>);

}  // namespace
}  // namespace tenon::cpu
