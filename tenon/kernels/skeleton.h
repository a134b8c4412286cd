// Skeletons: generic kernels with typed holes. The contract says which anchors a skeleton serves, which holes it has
// and what may fill them; bodies are in the backends. A skeleton registers itself, so adding one takes only its file.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/kernels/form.h"

namespace tenon {

struct Skeleton {
  std::string_view name;
  /// Names of the input holes, one per anchor operand including optional ones ("a", "b"; "x", "w"; "q", "k", "v",
  /// "keys"); a single hole "load" without an anchor.
  std::vector<std::string_view> holes;
  /// True if this skeleton serves launches with this anchor (empty: launches without one), second results included.
  bool (*serves)(const Expr& anchor);
  /// Among skeletons that serve the same launch, the lowest is preferred, then the first by name.
  int preference = 0;
  /// Empty if the form can run, else the reason it cannot, as a sentence that `explain` prints.
  std::string (*legal)(const Form& form) = [](const Form&) { return std::string(); };
};

/// Skeleton::serves for anchors that are one of the node structs T; if there are none, for launches without an anchor.
template <class... T>
bool anchored_by(const Expr& anchor) {
  return sizeof...(T) > 0 ? (anchor.is<T>() || ...) : !anchor;
}

/// Adds a skeleton for the life of the process: `const RegisterSkeleton kGemm({.name = "gemm", ..});`
struct RegisterSkeleton {
  explicit RegisterSkeleton(const Skeleton& skeleton);
};

/// The skeleton of this name; throws Error(Usage) that lists all names.
const Skeleton& skeleton(std::string_view name);

/// Sets the skeleton and the form of a launch. If no skeleton can run it, leaves it without a form and returns why
/// (refused by the form, or by the last skeleton tried). `graph`: as for make_form.
Refusal choose_skeleton(Launch& launch, std::shared_ptr<Graph> graph);
/// Sets the form of a launch that names its skeleton; returns the reason if that skeleton cannot run it. Throws
/// Error(Usage) for an unknown skeleton.
std::optional<std::string> form_launch(Launch& launch);

}  // namespace tenon
