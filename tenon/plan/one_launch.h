// Manual control: a plan of one launch, with the skeleton chosen by the caller.
#pragma once
#include <span>
#include <string>

#include "tenon/plan/plan.h"

namespace tenon {

/// A plan of exactly one launch that writes what `sinks` say (nodes/sinks.h), run by the skeleton of that name. Throws
/// Error(Usage) with the reason if the skeleton cannot run it.
Plan one_launch(const std::string& skeleton_name, std::span<const Expr> sinks);
inline Plan one_launch(const std::string& skeleton_name, std::initializer_list<Expr> sinks) {
  return one_launch(skeleton_name, std::span<const Expr>(sinks.begin(), sinks.size()));
}

}  // namespace tenon
