// Draws tokens from rows of scores, in memory or computed; token and log-probability go to the epilogue.
#include "tenon/kernels/plain.h"

namespace tenon {
namespace {

class Sample : public SkeletonOf<nodes::Sample> {
 public:
  Sample() : SkeletonOf("sample", {"scores", "rule", "seed", "counter"}) {}
  std::optional<std::string> legal(const Form&) const override { return std::nullopt; }
};

const RegisterSkeleton<Sample> kRegisteredSample;

}  // namespace
}  // namespace tenon
