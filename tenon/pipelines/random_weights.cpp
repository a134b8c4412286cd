#include "tenon/pipelines/random_weights.h"

#include "tenon/core/beside.h"
#include "tenon/core/error.h"
#include "tenon/models/hash_weights.h"

namespace tenon {
namespace {

class RandomWeights : public WeightSource {
 public:
  RandomWeights(WeightShapes shapes, uint64_t seed) : shapes_(std::move(shapes)), seed_(seed) {}
  HostView find(const std::string& name) const override {
    const auto it = shapes_.find(name);
    TENON_CHECK(Model, it != shapes_.end(), "random weights") << "no tensor '" << name << "'";
    const Shape& shape = it->second;
    std::vector<std::byte>& data = made_[name];
    if (data.empty()) {
      const int64_t n = shape.numel(), half = n / 2;
      data.resize(static_cast<size_t>(2 * n));
      const auto fill = [&](int64_t begin, int64_t end) {
        random_weight(name, shape, DType::BF16, begin, end, data.data() + 2 * begin, seed_);
      };
      run_beside([&] { fill(0, half); }, [&] { fill(half, n); });
    }
    return {DType::BF16, shape, data.data()};
  }
  void done(const std::string& name) const override { made_.erase(name); }

 private:
  WeightShapes shapes_;
  uint64_t seed_;
  mutable std::map<std::string, std::vector<std::byte>> made_;
};

}  // namespace

std::unique_ptr<WeightSource> random_weights(WeightShapes shapes, uint64_t seed) {
  return std::make_unique<RandomWeights>(std::move(shapes), seed);
}

}  // namespace tenon
