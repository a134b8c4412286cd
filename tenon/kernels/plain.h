// What most skeletons have in common: a name, names of holes, and the anchors they serve.
#pragma once
#include <algorithm>

#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

/// A skeleton with this name and these holes for launches whose anchor is one of the node structs T; if there are none,
/// for launches without an anchor.
template <class... T>
class SkeletonOf : public Skeleton {
 public:
  SkeletonOf(std::string_view name, std::vector<std::string_view> holes) : name_(name), holes_(std::move(holes)) {}
  std::string_view name() const override { return name_; }
  std::span<const std::string_view> holes() const override { return holes_; }
  bool serves(const Expr& anchor) const override { return sizeof...(T) ? (anchor.is<T>() || ...) : !anchor; }

 private:
  std::string_view name_;
  std::vector<std::string_view> holes_;
};

/// A skeleton for launches without an anchor, with one hole.
class PlainSkeleton : public SkeletonOf<> {
 public:
  PlainSkeleton(std::string_view name, int preference) : SkeletonOf(name, {"load"}), preference_(preference) {}
  int preference() const override { return preference_; }

 private:
  int preference_;
};

/// True if a value contains a reduction over the last axis.
inline bool reduces_rows(const Form& form) {
  return std::ranges::any_of(form.outputs, [](const FormOutput& o) { return reduces_rows(o.value); });
}

/// True if an output is a statistic over the inner axes.
inline bool has_statistics(const Form& form) {
  return std::ranges::any_of(form.outputs, [](const FormOutput& o) { return o.statistic != nullptr; });
}

}  // namespace tenon
