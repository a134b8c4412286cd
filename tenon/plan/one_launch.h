// Manual control: a plan of one launch, with the skeleton chosen by the caller.
#pragma once
#include <span>
#include <string>

#include "tenon/plan/plan.h"

namespace tenon {

/// What a launch writes: x, in x's dtype, to the tensor `name`. Permuted, partial or quantised: make x such an
/// expression.
inline Result store(std::string name, const Expr& x) { return {std::move(name), x}; }

/// A plan of exactly one launch that writes these results, run by the skeleton of that name. Throws Error(Usage) with
/// the reason if the skeleton cannot run it.
Plan one_launch(const std::string& skeleton_name, std::span<const Result> results);
inline Plan one_launch(const std::string& skeleton_name, std::initializer_list<Result> results) {
  return one_launch(skeleton_name, std::span<const Result>(results.begin(), results.size()));
}

}  // namespace tenon
