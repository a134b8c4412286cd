// Pointwise maths and views over any shape, element by element: one read of every operand, one write of every result.
#include "tenon/expr/ops.h"
#include "tenon/kernels/plain.h"

namespace tenon {
namespace {

class Map : public PlainSkeleton {
 public:
  std::string_view name() const override { return "map"; }
  std::optional<std::string> legal(const Form& form) const override {
    if (reduces_rows(form)) return "a reduction needs its whole row resident";
    if (has_statistics(form, false)) return "statistics over an image need the groups skeleton";
    return std::nullopt;
  }
  int preference() const override { return 0; }
};

const RegisterSkeleton<Map> kRegisteredMap;

}  // namespace
}  // namespace tenon
