// Several reductions in sequence over a resident row, then several sinks: norms, softmax, quantisation.
#include "tenon/expr/ops.h"
#include "tenon/kernels/plain.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

class Rows : public Skeleton {
 public:
  std::string_view name() const override { return "rows"; }
  std::span<const std::string_view> holes() const override {
    static constexpr std::string_view names[] = {"load"};
    return names;
  }
  bool serves(const Expr& anchor) const override { return !anchor; }
  std::optional<std::string> legal(const Form& form) const override {
    if (has_statistics(form, false)) return "statistics over an image need the groups skeleton";
    return std::nullopt;
  }
  int preference() const override { return 1; }
};

const RegisterSkeleton<Rows> kRegisteredRows;

}  // namespace
}  // namespace tenon
