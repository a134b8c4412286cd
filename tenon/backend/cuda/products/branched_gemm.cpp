// The branched_gemm skeleton: a gemm that adds a narrow product, the branch, before its epilogue.
#include "tenon/backend/cuda/products/gemm_kernel.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {

void ProductKernel::set_branch() {
  const Expr &a = form_.holes[2], &b = form_.holes[3];
  const DType t = b.dtype();
  TENON_CHECK(Usage, b.shape()[0] % (32 * lanes()) == 0 && b.shape()[1] % vector_width(t) == 0, name())
      << "a branch of shape " << b.shape().str() << " does not split into whole blocks";
  const bool in_place = read_in_place(a, t, device().facts()) && rows_in_boxes(a, t);
  if (in_place) read_beside(a);
  branch_ = Branch{in_place ? a
                            : stored_operand(
                                  2, a.shape(), [](const Expr& leaf) { return leaf; }, t),
                   input(*form_.graph, "%hole.3", t, b.shape()),
                   std::span(form_.holes).subspan(nodes::BranchedLinear::kOperands)};
  ask_packed(branch_->b, {{without_rounding(b, t), permuted_rows(branch_->b)}});
  for (const Expr& f : branch_->factors) read_beside(f);
}

std::string ProductKernel::branch_source(Params& params, std::string& headers, const MakeRowsBox& a,
                                         const MakeRowsBox& b) const {
  const bool scales = !branch_->factors.empty();
  const std::string columns = params.integer("branch_columns", branch_->a.shape()[-1]);
  return map_source("BranchA", branch_->a, BoxesOf::Rows, params, a) +
         map_source("BranchB", branch_->b, BoxesOf::Rows, params, b) +
         (scales ? scaled_source(branch_->factors, params, headers) : std::string("using Factors = void;\n")) +
         "struct Branch {\n  using A = BranchA;\n  using B = BranchB;\n  using Scaled = Factors;\n  static constexpr "
         "bool kScales = " +
         (scales ? "true" : "false") + ";\n  DEV static int columns(const Params& p) { return " + columns + "; }\n};\n";
}

const RegisterBody kRegisteredBranchedGemm("branched_gemm", &LaunchBodies::body<GemmKernel>);

}  // namespace tenon::cuda
