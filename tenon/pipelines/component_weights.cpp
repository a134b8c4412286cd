#include "tenon/pipelines/component_weights.h"

#include <array>

#include "tenon/core/beside.h"
#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/pipelines/made_numbers.h"

namespace tenon {
namespace {

class TensorWeights : public WeightSource {
 public:
  explicit TensorWeights(const std::map<std::string, TensorView>& tensors) : tensors_(tensors) {}
  HostView find(const std::string& name) const override {
    const auto it = tensors_.find(name);
    TENON_CHECK(Model, it != tensors_.end(), "weights") << "no tensor '" << name << "'";
    return {it->second.dtype, it->second.shape, it->second.data};
  }
  void done(const std::string& name) const override { release(tensors_.at(name)); }

 private:
  const std::map<std::string, TensorView>& tensors_;
};

class GgufWeights : public WeightSource {
 public:
  GgufWeights(const std::map<std::string, GgufSlice>& tensors, std::string where)
      : tensors_(tensors), where_(std::move(where)) {}
  HostView find(const std::string& name) const override {
    const auto it = tensors_.find(name);
    TENON_CHECK(Model, it != tensors_.end(), where_) << "there is no tensor '" << shown(name) << "'";
    const GgufSlice& slice = it->second;
    const auto make = [&](std::span<float> all) {
      const int64_t rows = slice.shape.rows(), half = slice.shape.rank() > 1 ? rows / 2 : 0, cols = slice.shape.cols();
      run_beside([&] { read_rows(slice, 0, all.first(static_cast<size_t>(half * cols))); },
                 [&] { read_rows(slice, half, all.subspan(static_cast<size_t>(half * cols))); });
    };
    return {DType::F32, slice.shape, made_.get(name, slice.shape, make)};
  }
  void done(const std::string& name) const override {
    made_.drop(name);
    const std::span<const std::byte> stored = tensors_.at(name).stored();
    release({DType::U8, {}, stored.data(), stored.size()});  // the file is mapped
  }

 private:
  const std::map<std::string, GgufSlice>& tensors_;
  std::string where_;
  MadeNumbers made_;
};

class ComponentWeights : public WeightSource {
 public:
  explicit ComponentWeights(const Component& component) : component_(component) {}
  HostView find(const std::string& name) const override {
    const TensorView& t = component_.at(name);
    const auto scale = component_.scales.find(name);
    if (scale == component_.scales.end()) return {t.dtype, t.shape, t.data};
    const auto make = [&](std::span<float> out) { multiply(t, scale->second, out); };
    return {DType::F32, t.shape, made_.get(name, t.shape, make)};
  }
  void done(const std::string& name) const override {
    made_.drop(name);
    release(component_.at(name));
  }

 private:
  static void multiply(const TensorView& t, const TensorView& scale, std::span<float> out) {
    std::array<float, 256> values{};
    for (size_t bits = 0; bits < values.size(); ++bits) values[bits] = e4m3_value(static_cast<uint8_t>(bits));
    const size_t count = static_cast<size_t>(scale.shape.numel()), run = out.size() / count;
    for (size_t row = 0; row < count; ++row) {
      const auto factor = static_cast<float>(load_element(scale.dtype, scale.data, static_cast<int64_t>(row)));
      for (size_t i = row * run; i < (row + 1) * run; ++i) out[i] = values[std::to_integer<size_t>(t.data[i])] * factor;
    }
  }

  const Component& component_;
  MadeNumbers made_;
};

}  // namespace

std::unique_ptr<WeightSource> tensor_weights(const std::map<std::string, TensorView>& tensors) {
  return std::make_unique<TensorWeights>(tensors);
}

std::unique_ptr<WeightSource> gguf_weights(const std::map<std::string, GgufSlice>& tensors, const std::string& where) {
  return std::make_unique<GgufWeights>(tensors, where);
}

std::unique_ptr<WeightSource> component_weights(const Component& component) {
  if (!component.blocks.empty()) return gguf_weights(component.blocks, component.name);
  return std::make_unique<ComponentWeights>(component);
}

}  // namespace tenon
