// Which class of a backend runs launches of a skeleton. A backend has one table; its classes add themselves.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "tenon/core/error.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

/// `K`: the base of the backend's launches; `Machine`: what they are made for.
template <class K, class Machine>
class Bodies {
 public:
  using Maker = std::unique_ptr<K> (*)(Machine, const Launch&, Form);

  template <class T>
  static std::unique_ptr<K> body(Machine machine, const Launch& launch, Form form) {
    return std::make_unique<T>(std::move(machine), launch, std::move(form));
  }

  /// One beside each class: `const RegisterBody kRegisteredGemm("gemm", &LaunchBodies::body<GemmKernel>);`
  struct Register {
    Register(std::string skeleton, Maker maker) { all().emplace(std::move(skeleton), maker); }
  };

  /// Makes the kernel of a launch. Throws Error(Internal) for a launch that no skeleton can run.
  static std::unique_ptr<K> make(Machine machine, const Launch& launch) {
    FormResult result = make_form(launch);
    TENON_CHECK(Internal, result.form.has_value(), launch.name) << result.refusal.why;
    const std::optional<std::string> refused = skeleton(launch.skeleton).legal(*result.form);
    TENON_CHECK(Internal, !refused, launch.name) << launch.skeleton << ": " << *refused;
    const auto found = all().find(launch.skeleton);
    TENON_CHECK(Internal, found != all().end(), launch.name) << "no body for skeleton " << launch.skeleton;
    return found->second(std::move(machine), launch, std::move(*result.form));
  }

 private:
  static std::map<std::string, Maker>& all() {
    static std::map<std::string, Maker> bodies;
    return bodies;
  }
};

}  // namespace tenon
