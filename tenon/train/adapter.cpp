#include "tenon/train/adapter.h"

#include <cmath>
#include <map>
#include <vector>

#include "tenon/core/philox.h"

namespace tenon::train {
namespace {

constexpr double kTwoTo32 = 4294967296.0;

class NewAdapter : public WeightSource {
 public:
  NewAdapter(std::unique_ptr<WeightSource> base, const WeightShapes& leaves, uint64_t seed) : base_(std::move(base)) {
    uint64_t place = 0;
    for (const auto& [name, shape] : leaves) {
      Leaf& leaf = leaves_[name];
      leaf.shape = shape;
      leaf.values.resize(static_cast<size_t>(shape.numel()));
      ++place;
      if (name.find(".lora_A.") == std::string::npos) continue;
      const double bound = 1 / std::sqrt(static_cast<double>(shape[1]));
      for (size_t i = 0; i < leaf.values.size(); ++i)
        leaf.values[i] = static_cast<float>(bound * (2 * (philox(seed, place, i)[0] + 0.5) / kTwoTo32 - 1));
    }
  }
  HostView find(const std::string& name) const override {
    const auto it = leaves_.find(name);
    if (it == leaves_.end()) return base_->find(name);
    return {DType::F32, it->second.shape, it->second.values.data()};
  }
  void done(const std::string& name) const override {
    if (!leaves_.contains(name)) base_->done(name);
  }

 private:
  struct Leaf {
    Shape shape;
    std::vector<float> values;
  };
  std::unique_ptr<WeightSource> base_;
  std::map<std::string, Leaf> leaves_;
};

}  // namespace

std::shared_ptr<const WeightSource> with_new_adapter(std::unique_ptr<WeightSource> base, const WeightShapes& leaves,
                                                     uint64_t seed) {
  return std::make_shared<NewAdapter>(std::move(base), leaves, seed);
}

}  // namespace tenon::train
