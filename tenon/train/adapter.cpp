#include "tenon/train/adapter.h"

#include <cmath>
#include <map>
#include <vector>

#include "tenon/core/not_null.h"
#include "tenon/core/philox.h"

namespace tenon::train {
namespace {

constexpr double kTwoTo32 = 4294967296.0;

class NewAdapter : public WeightSource {
 public:
  NewAdapter(std::unique_ptr<WeightSource> base, const WeightShapes& leaves, uint64_t seed)
      : base_(not_null(std::move(base), "weights")), seed_(seed) {
    for (const auto& [name, shape] : leaves) leaves_[name] = {shape, leaves_.size() + 1};
  }
  HostView find(const std::string& name) const override {
    const auto it = leaves_.find(name);
    if (it == leaves_.end()) return base_->find(name);
    const auto [made, first] = made_.try_emplace(name);
    if (first) made->second = values(name, it->second);
    return {DType::F32, it->second.shape, made->second.data()};
  }
  void done(const std::string& name) const override {
    if (made_.erase(name) == 0 && !leaves_.contains(name)) base_->done(name);
  }

 private:
  struct Leaf {
    Shape shape;
    uint64_t place = 0;  ///< of its name among all, from 1
  };
  std::vector<float> values(const std::string& name, const Leaf& leaf) const {
    std::vector<float> out(static_cast<size_t>(leaf.shape.numel()));
    if (name.find(".lora_A.") == std::string::npos) return out;
    const double bound = 1 / std::sqrt(static_cast<double>(leaf.shape[1]));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(bound * (2 * (philox(seed_, leaf.place, i)[0] + 0.5) / kTwoTo32 - 1));
    return out;
  }

  std::unique_ptr<WeightSource> base_;
  uint64_t seed_;
  std::map<std::string, Leaf> leaves_;
  mutable std::map<std::string, std::vector<float>> made_;  // until `done`
};

}  // namespace

std::shared_ptr<const WeightSource> with_new_adapter(std::unique_ptr<WeightSource> base, const WeightShapes& leaves,
                                                     uint64_t seed) {
  return std::make_shared<NewAdapter>(std::move(base), leaves, seed);
}

}  // namespace tenon::train
