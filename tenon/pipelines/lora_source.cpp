#include "tenon/pipelines/lora_source.h"

#include <algorithm>
#include <cstring>

#include "tenon/core/stop.h"
#include "tenon/nn/side_branch.h"

namespace tenon {
namespace {

// Whole models are converted here: their types have a loop each.
std::vector<float> as_f32(const HostView& view) {
  std::vector<float> out(static_cast<size_t>(view.shape.numel()));
  const auto* const bytes = static_cast<const std::byte*>(view.data);
  if (out.empty()) return out;
  if (view.dtype == DType::F32) {
    std::memcpy(out.data(), bytes, out.size() * sizeof(float));
  } else if (view.dtype == DType::BF16) {
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
      out[i] = bf16_value(bits);
    }
  } else {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(load_element(view.dtype, bytes, static_cast<int64_t>(i)));
  }
  return out;
}

class ChangedWeights : public WeightSource {
 public:
  ChangedWeights(std::string component, std::unique_ptr<WeightSource> base, std::shared_ptr<const LoraTerms> terms)
      : base_(std::move(base)), component_(std::move(component)), terms_(std::move(terms)) {}

 protected:
  const std::vector<LoraTerm>& terms_of(const std::string& tensor) const {
    static const std::vector<LoraTerm> kNone;
    const auto component = terms_->find(component_);
    if (component == terms_->end()) return kNone;
    const auto it = component->second.find(tensor);
    return it == component->second.end() ? kNone : it->second;
  }

  std::unique_ptr<WeightSource> base_;
  mutable std::map<std::string, std::vector<float>> made_;  // until they are done with

 private:
  std::string component_;
  std::shared_ptr<const LoraTerms> terms_;
};

class MergedWeights : public ChangedWeights {
 public:
  using ChangedWeights::ChangedWeights;

  HostView find(const std::string& name) const override {
    const HostView base = base_->find(name);
    const std::vector<LoraTerm>& terms = terms_of(name);
    if (terms.empty()) return base;
    std::vector<float>& values = made_[name];
    if (values.empty()) values = merged(base, terms);
    return {DType::F32, base.shape, values.data()};
  }
  void done(const std::string& name) const override {
    made_.erase(name);
    base_->done(name);
  }

 private:
  static std::vector<float> merged(const HostView& base, const std::vector<LoraTerm>& terms) {
    std::vector<float> out = as_f32(base);
    const auto columns = static_cast<size_t>(terms.front().matrix->columns);
    for (size_t row = 0; row * columns < out.size(); ++row) {
      check_stop("lora");
      for (const LoraTerm& t : terms)
        t.matrix->add_row(t.first_row + static_cast<int64_t>(row), t.weight,
                          std::span(out).subspan(row * columns, columns));
    }
    return out;
  }
};

class SideWeights : public ChangedWeights {
 public:
  SideWeights(std::string component, std::unique_ptr<WeightSource> base, std::shared_ptr<const LoraTerms> terms,
              int64_t rank)
      : ChangedWeights(std::move(component), std::move(base), std::move(terms)), rank_(rank) {}

  HostView find(const std::string& name) const override {
    const std::string weight = weight_of(name);
    if (weight.empty()) return base_->find(name);
    const Shape shape = base_->find(weight).shape;
    const int64_t rows = shape[0], columns = shape.numel() / rows;
    const bool down = name == nn::side_down(weight);
    std::vector<float>& values = made_[name];
    if (values.empty()) {
      values.resize(static_cast<size_t>(rank_ * (down ? columns : rows)));
      int64_t at = 0;  // in the branch's rank
      for (const LoraTerm& t : terms_of(weight)) {
        if (down)
          std::ranges::copy(t.matrix->down, values.begin() + at * columns);
        else
          put_up(t, rows, at, values);
        at += t.matrix->rank;
      }
    }
    return {DType::F32, down ? Shape{rank_, columns} : Shape{rows, rank_}, values.data()};
  }
  void done(const std::string& name) const override {
    made_.erase(name);
    if (weight_of(name).empty()) base_->done(name);
  }

 private:
  // The weight whose A or B this is the name of; empty for the model's own.
  static std::string weight_of(const std::string& name) {
    const size_t dot = name.rfind('.');
    if (dot == name.npos) return {};
    std::string weight = name.substr(0, dot) + ".weight";
    return name == nn::side_down(weight) || name == nn::side_up(weight) ? weight : std::string();
  }

  void put_up(const LoraTerm& t, int64_t rows, int64_t at, std::vector<float>& values) const {
    const auto scale = static_cast<float>(t.weight * t.matrix->scale);
    const int64_t r = t.matrix->rank;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < r; ++i)
        values[static_cast<size_t>(row * rank_ + at + i)] =
            scale * t.matrix->up[static_cast<size_t>((t.first_row + row) * r + i)];
  }

  int64_t rank_;
};

}  // namespace

std::unique_ptr<WeightSource> lora_source(const std::string& component, std::unique_ptr<WeightSource> base,
                                          std::shared_ptr<const LoraTerms> terms, int64_t side_rank) {
  if (side_rank) return std::make_unique<SideWeights>(component, std::move(base), std::move(terms), side_rank);
  return std::make_unique<MergedWeights>(component, std::move(base), std::move(terms));
}

}  // namespace tenon
