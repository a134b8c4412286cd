// Skeletons: generic kernels with typed holes. The contract says which anchors a skeleton serves, which holes it has
// and what may fill them; bodies are in the backends. A skeleton registers itself, so adding one takes only its file.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "tenon/kernels/form.h"

namespace tenon {

class Skeleton {
 public:
  virtual ~Skeleton() = default;
  virtual std::string_view name() const = 0;
  /// Names of the input holes, one per anchor operand including optional ones ("a", "b"; "x", "w"; "q", "k", "v",
  /// "keys"); a single hole "load" without an anchor.
  virtual std::span<const std::string_view> holes() const = 0;
  /// True if this skeleton serves launches with this anchor (empty: launches without one), second results included.
  virtual bool serves(const Expr& anchor) const = 0;
  /// Empty if the form can run, else the reason it cannot, as a sentence that `explain` prints.
  virtual std::optional<std::string> legal(const Form& form) const = 0;
  /// Among skeletons that serve the same launch, the lowest is preferred.
  virtual int preference() const { return 0; }
};

/// Adds a skeleton to the registry for the life of the process: `static const RegisterSkeleton<Gemm> registered;`
void register_skeleton(const Skeleton* skeleton);
template <class T>
struct RegisterSkeleton {
  T skeleton;
  RegisterSkeleton() { register_skeleton(&skeleton); }
};

/// All skeletons, sorted by preference, then name.
std::span<const Skeleton* const> skeletons();
/// The skeleton of this name; throws Error(Usage) that lists all names.
const Skeleton& skeleton(std::string_view name);

/// The skeleton that can run `launch`, or why none can (refused by the form, or by the last skeleton tried).
struct Choice {
  const Skeleton* skeleton = nullptr;
  Refusal refusal;
  std::shared_ptr<const Form> form;  ///< set if there is a skeleton
};
/// `graph`: as for make_form.
Choice choose_skeleton(const Launch& launch, std::shared_ptr<Graph> graph);
/// Sets the form of a launch that names its skeleton; returns the reason if that skeleton cannot run it. Throws
/// Error(Usage) for an unknown skeleton.
std::optional<std::string> form_launch(Launch& launch);

}  // namespace tenon
