// Statistics (means, variances, ..) over the inner axes, per sample and channel, where no producer can supply them.
#include "tenon/expr/ops.h"
#include "tenon/kernels/plain.h"

namespace tenon {
namespace {

class Groups : public PlainSkeleton {
 public:
  std::string_view name() const override { return "groups"; }
  std::optional<std::string> legal(const Form& form) const override {
    if (!has_statistics(form, true)) return "only statistics over the inner axes";
    return std::nullopt;
  }
  int preference() const override { return 2; }
};

const RegisterSkeleton<Groups> kRegisteredGroups;

}  // namespace
}  // namespace tenon
