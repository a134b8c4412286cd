// The skeleton of attention's gradients: q, k, v and the result's gradient are read in place where their heads lie.
#include "tenon/backend/cuda/attention/attention_route.h"
#include "tenon/backend/cuda/attention/paged_heads.h"
#include "tenon/backend/cuda/device/products/core_sizes.h"
#include "tenon/backend/cuda/launches/anchor_kernel.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

class AttentionGradientKernel : public AnchorKernel {
 public:
  AttentionGradientKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : AnchorKernel(std::move(device), launch, std::move(form)) {
    const Shape q = form_.holes[0].shape();
    of_keys_ = form_.anchor.is<nodes::AttentionKeyGradient>();
    for (const FormOutput& o : form_.outputs)
      if (o.companion) of_queries_ = o.place;
    const AttentionGradients which = of_queries_ ? AttentionGradients::All
                                     : of_keys_  ? AttentionGradients::Keys
                                                 : AttentionGradients::Queries;
    tile_ = pick_attention_gradient(checked_int(q[3]), which, this->device().facts());
    TENON_CHECK(Usage, tensor_cores() && tile_.depth > 0, name())
        << "heads of " << q[3] << " columns in " << name_of(unit_) << ": the plan was made for another device";
    for (size_t i = 0; i < kHeads; ++i) {
      const Expr& hole = form_.holes[i];
      const bool boxes = hole.dtype() == unit_ && head_rows(hole);
      operands_.push_back(boxes ? padded_operand(i)
                                : stored_operand(
                                      i, hole.shape(), [](const Expr& leaf) { return leaf; }, unit_));
      const auto rows = head_rows(operands_.back());
      TENON_CHECK(Internal, rows, name()) << "operand " << i << " cannot be read in boxes";
      boxes_.push_back(*rows);
    }
    for (size_t i = kHeads; i < form_.holes.size(); ++i) read_beside(form_.holes[i]);
    sizes_ = attention_sizes(form_);
    reserve_split(attention_needs(tile_, sizes_));
    reserve_statistics();
  }

 private:
  static constexpr size_t kHeads = 4;  // the operands of products: q, k, v, g

  int own_calls() const override { return operand_calls() + 1; }

  void make_calls() override {
    make_operands();
    Params params;
    params.set_sizes("AttentionSizes", sizes_);
    KernelParts source;
    for (size_t i = 0; i < kHeads; ++i) source.functors += heads_source(i, params);
    source.functors += "struct Sums {\n" + row_source("Lse", "lse", 4, params, source.headers) +
                       row_source("Delta", "delta", 5, params, source.headers) + "};\n";
    const bool counted = form_.holes.size() > nodes::AttentionGradient::kOperands;
    source.functors += keys_source(counted ? form_.holes.back() : Expr(), params, source.headers);
    source.functors +=
        epilogue_source(params, source.headers, 8) + query_sums_source(params) + "using Tile = " + tile_.type() + ";\n";
    source.headers = "#include \"tenon/backend/cuda/device/attention/attention_gradient.h\"\n" + source.headers;
    source.name = name() + " " + tile_.type();
    source.kernel =
        "KERNEL(Tile::kThreads, 1, Params, p) { attention_gradient<Tile, Q, K, V, G, Sums, Epilogue, Keys, "
        "QuerySums>(p); }\n";
    const CallNeeds needs = attention_needs(tile_, sizes_);
    add_core(KernelCall(device(), source, params, needs.shape), offsetof(device::AttentionSizes, split));
  }

  // "struct Q { .. };": the boxes of an operand.
  std::string heads_source(size_t i, Params& params) const {
    const bool of_queries = i == 0 || i == 3, held = of_queries != of_keys_;
    const auto box = [rows = boxes_[i], s = sizes_, of_queries, tokens = held ? 64 : tile_.keys](void* address) {
      return head_box(static_cast<std::byte*>(address) + rows.offset * 2, rows.strides, s.batch,
                      of_queries ? s.heads : s.kv_heads, of_queries ? s.queries : s.keys, s.depth, tokens);
    };
    return std::string("struct ") + "QKVG"[i] + " {\n  using T = " + type_source(unit_) +
           ";\n  DEV static const TensorMap& map(const Params& p) { return " + params.map(boxes_[i].leaf, box) +
           "; }\n};\n";
  }

  // A functor, and a function that returns one number per row.
  std::string row_source(const std::string& functor, const std::string& function, size_t hole, Params& params,
                         std::string& headers) const {
    return element_source(functor, form_.holes[hole], 3, params, headers) + "  DEV static float " + function +
           "(const Params& p, int row) { return " + functor + "::eval(p, row, 0).v[0]; }\n";
  }

  // "struct QuerySums { .. }": where the gradient of queries goes.
  std::string query_sums_source(Params& params) const {
    if (!of_queries_) return "using QuerySums = NoQuerySums;\n";
    const auto box = [s = sizes_](void* address) {
      return TensorBox{.address = address,
                       .element_bytes = 4,
                       .rank = 3,
                       .extent = {s.depth, s.queries, int64_t{s.batch} * s.heads},
                       .stride_bytes = {4, int64_t{4} * s.depth, int64_t{4} * s.depth * s.queries},
                       .box = {32, 64, 1},
                       .swizzle_bytes = 128};
    };
    return "struct QuerySums {\n  DEV static const TensorMap& map(const Params& p) { return " +
           params.map(of_queries_, box) + "; }\n};\n";
  }

  bool of_keys_ = false;
  AttentionGradientShape tile_;
  device::AttentionSizes sizes_;
  Expr of_queries_;  // their gradient, if this kernel computes it beside that of keys
  std::vector<Expr> operands_;
  std::vector<HeadRows> boxes_;
};

const RegisterBody kRegisteredAttentionGradient("attention_gradient", &LaunchBodies::body<AttentionGradientKernel>);

}  // namespace
}  // namespace tenon::cuda
