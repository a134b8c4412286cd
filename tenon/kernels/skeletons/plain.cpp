// Launches without an anchor.
#include "tenon/kernels/plain.h"

namespace tenon {
namespace {

// Elementwise maths and views over any shape: one read of every operand, one write of every result.
class Map : public PlainSkeleton {
 public:
  Map() : PlainSkeleton("map", 0) {}
  std::optional<std::string> legal(const Form& form) const override {
    if (reduces_rows(form)) return "a reduction needs its whole row resident";
    if (has_statistics(form)) return "statistics over an image need the groups skeleton";
    return std::nullopt;
  }
};

// Several reductions in sequence over a resident row, then several outputs: norms, softmax, quantisation.
class Rows : public PlainSkeleton {
 public:
  Rows() : PlainSkeleton("rows", 1) {}
  std::optional<std::string> legal(const Form& form) const override {
    if (has_statistics(form)) return "statistics over an image need the groups skeleton";
    return std::nullopt;
  }
};

// Statistics (means, variances, ..) over the inner axes, per sample and channel, if no producer can supply them.
class Groups : public PlainSkeleton {
 public:
  Groups() : PlainSkeleton("groups", 2) {}
  std::optional<std::string> legal(const Form& form) const override {
    const bool all = std::ranges::all_of(form.outputs, [](const FormOutput& o) { return o.statistic != nullptr; });
    if (!all) return "supports only statistics over the inner axes";
    return std::nullopt;
  }
};

const RegisterSkeleton<Map> kRegisteredMap;
const RegisterSkeleton<Rows> kRegisteredRows;
const RegisterSkeleton<Groups> kRegisteredGroups;

}  // namespace
}  // namespace tenon
