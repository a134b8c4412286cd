// Tokens drawn from rows of scores: rows in memory or computed, token and log-probability to the epilogue.
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

class Sample : public Skeleton {
 public:
  std::string_view name() const override { return "sample"; }
  std::span<const std::string_view> holes() const override {
    static constexpr std::string_view names[] = {"scores", "rule", "seed", "counter"};
    return names;
  }
  bool serves(const Expr& anchor) const override { return anchor && anchor.is<nodes::Sample>(); }
  std::optional<std::string> legal(const Form&) const override { return std::nullopt; }
};

const RegisterSkeleton<Sample> kRegisteredSample;

}  // namespace
}  // namespace tenon
