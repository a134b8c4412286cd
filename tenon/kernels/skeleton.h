// Skeletons: generic kernels with typed holes. A contract says which anchor a skeleton serves, which holes it has and
// what may fill them; the bodies stand in the backends. A skeleton registers itself: its file is all there is to add.
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
  /// Names of the input holes by anchor operand ("a", "b"; "x", "w"; "q", "k", "v", "keys"), of operands that
  /// may be missing too; one hole "load" without an anchor.
  virtual std::span<const std::string_view> holes() const = 0;
  /// True if this skeleton serves launches whose anchor is `anchor` (empty: launches without one) with this form.
  virtual bool serves(const Expr& anchor) const = 0;
  /// Empty if the form can run, else the reason it cannot, in a sentence that `explain` prints.
  virtual std::optional<std::string> legal(const Form& form) const = 0;
  /// Whether it stores this other result of its anchor too.
  virtual bool delivers(const NodeType& companion) const {
    static_cast<void>(companion);
    return false;
  }
  /// Lower is preferred among skeletons that serve the same launch.
  virtual int preference() const { return 0; }
};

/// Adds a skeleton to the registry for the life of the process: `static const RegisterSkeleton<Gemm> registered;`
void register_skeleton(const Skeleton* skeleton);
template <class T>
struct RegisterSkeleton {
  T skeleton;
  RegisterSkeleton() { register_skeleton(&skeleton); }
};

/// All skeletons, by preference then name.
std::span<const Skeleton* const> skeletons();
/// The skeleton of this name; throws Error(Usage) that lists the names.
const Skeleton& skeleton(std::string_view name);

/// The skeleton that can run `launch`, or why none can (the refusal of the form or of the last skeleton asked).
struct Choice {
  const Skeleton* skeleton = nullptr;
  Refusal refusal;
  std::shared_ptr<const Form> form;  ///< with a skeleton
};
Choice choose_skeleton(const Launch& launch);
/// The same with a form in the graph of the launch's own body, which nobody adds to any more.
Choice choose_skeleton(const Launch& launch, std::shared_ptr<Graph> graph);
/// Gives a launch that names its skeleton its form; the reason if that skeleton cannot run it. Throws Error(Usage) for
/// an unknown skeleton.
std::optional<std::string> form_launch(Launch& launch);

}  // namespace tenon
