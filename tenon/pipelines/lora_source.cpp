#include "tenon/pipelines/lora_source.h"

#include <algorithm>
#include <span>

#include "tenon/core/stop.h"
#include "tenon/nn/low_rank.h"
#include "tenon/pipelines/made_numbers.h"

namespace tenon {
namespace {

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
  MadeNumbers made_;

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
    const auto make = [&](std::span<float> out) { merge(base, terms, out); };
    return {DType::F32, base.shape, made_.get(name, base.shape, make)};
  }
  void done(const std::string& name) const override {
    made_.drop(name);
    base_->done(name);
  }

 private:
  static void merge(const HostView& base, const std::vector<LoraTerm>& terms, std::span<float> out) {
    load_floats(base.dtype, base.data, out);
    const auto columns = static_cast<size_t>(terms.front().matrix->columns);
    for (size_t row = 0; row * columns < out.size(); ++row) {
      check_stop("lora");
      for (const LoraTerm& t : terms)
        t.matrix->add_row(t.first_row + static_cast<int64_t>(row), t.weight, out.subspan(row * columns, columns));
    }
  }
};

class SideWeights : public ChangedWeights {
 public:
  SideWeights(std::string component, std::unique_ptr<WeightSource> base, std::shared_ptr<const LoraTerms> terms,
              int64_t rank, WeightShapes matrices)
      : ChangedWeights(std::move(component), std::move(base), std::move(terms)),
        rank_(rank),
        matrices_(std::move(matrices)) {}

  HostView find(const std::string& name) const override {
    const std::string weight = nn::weight_beside(name);
    const auto matrix = matrices_.find(weight);
    if (matrix == matrices_.end()) return base_->find(name);
    const int64_t rows = matrix->second[0], columns = matrix->second[1];  // of a 1x1 filter too
    const bool down = name == nn::side_down(weight);
    const Shape shape_of_branch = down ? Shape{rank_, columns} : Shape{rows, rank_};
    const auto make = [&](std::span<float> out) {
      std::ranges::fill(out, 0.f);
      int64_t at = 0;  // row in the branch's rank
      for (const LoraTerm& t : terms_of(weight)) {
        if (down)
          std::ranges::copy(t.matrix->down, out.begin() + at * columns);
        else
          put_up(t, rows, at, out);
        at += t.matrix->rank;
      }
    };
    return {DType::F32, shape_of_branch, made_.get(name, shape_of_branch, make)};
  }
  void done(const std::string& name) const override {
    made_.drop(name);
    if (!matrices_.contains(nn::weight_beside(name))) base_->done(name);
  }

 private:
  void put_up(const LoraTerm& t, int64_t rows, int64_t at, std::span<float> values) const {
    const auto scale = static_cast<float>(t.weight * t.matrix->scale);
    const int64_t r = t.matrix->rank;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < r; ++i)
        values[static_cast<size_t>(row * rank_ + at + i)] =
            scale * t.matrix->up[static_cast<size_t>((t.first_row + row) * r + i)];
  }

  int64_t rank_;
  WeightShapes matrices_;
};

}  // namespace

std::unique_ptr<WeightSource> merged_loras(const std::string& component, std::unique_ptr<WeightSource> base,
                                           std::shared_ptr<const LoraTerms> terms) {
  return std::make_unique<MergedWeights>(component, std::move(base), std::move(terms));
}

std::unique_ptr<WeightSource> side_loras(const std::string& component, std::unique_ptr<WeightSource> base,
                                         std::shared_ptr<const LoraTerms> terms, int64_t rank, WeightShapes matrices) {
  return std::make_unique<SideWeights>(component, std::move(base), std::move(terms), rank, std::move(matrices));
}

}  // namespace tenon
