// What the skeletons without an anchor ask of a form.
#pragma once
#include <algorithm>

#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

/// A skeleton for launches without an anchor: one hole.
class PlainSkeleton : public Skeleton {
 public:
  std::span<const std::string_view> holes() const override {
    static constexpr std::string_view names[] = {"load"};
    return names;
  }
  bool serves(const Expr& anchor) const override { return !anchor; }
};

/// True if a value contains a reduction over the last axis.
inline bool reduces_rows(const Form& form) {
  return std::any_of(form.outputs.begin(), form.outputs.end(),
                     [](const FormOutput& o) { return reduces_rows(o.value); });
}

/// True if every output (or, with `all` false, any) is a statistic over the inner axes.
inline bool has_statistics(const Form& form, bool all) {
  const auto is = [](const FormOutput& o) { return o.statistic != nullptr; };
  return all ? std::all_of(form.outputs.begin(), form.outputs.end(), is)
             : std::any_of(form.outputs.begin(), form.outputs.end(), is);
}

}  // namespace tenon
