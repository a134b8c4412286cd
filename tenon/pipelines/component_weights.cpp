#include "tenon/pipelines/component_weights.h"

namespace tenon {
namespace {

class ComponentWeights : public WeightSource {
 public:
  explicit ComponentWeights(const Component& component) : component_(component) {}
  HostView find(const std::string& name) const override {
    const TensorView& t = component_.at(name);
    return {t.dtype, t.shape, t.data};
  }
  void done(const std::string& name) const override { release(component_.at(name)); }

 private:
  const Component& component_;
};

}  // namespace

std::unique_ptr<WeightSource> component_weights(const Component& component) {
  return std::make_unique<ComponentWeights>(component);
}

}  // namespace tenon
