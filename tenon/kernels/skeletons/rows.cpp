// Several reductions in sequence over a resident row, then several sinks: norms, softmax, quantisation.
#include "tenon/expr/ops.h"
#include "tenon/kernels/plain.h"

namespace tenon {
namespace {

class Rows : public PlainSkeleton {
 public:
  std::string_view name() const override { return "rows"; }
  std::optional<std::string> legal(const Form& form) const override {
    if (has_statistics(form, false)) return "statistics over an image need the groups skeleton";
    return std::nullopt;
  }
  int preference() const override { return 1; }
};

const RegisterSkeleton<Rows> kRegisteredRows;

}  // namespace
}  // namespace tenon
