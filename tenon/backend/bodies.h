// Which class of a backend runs launches of a skeleton. A backend has one table; its classes add themselves.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "tenon/core/error.h"
#include "tenon/kernels/form.h"

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

  /// Makes the kernel of a launch that has its form, with a copy of it. Throws Error(Internal) for one without, and for
  /// a skeleton without a body.
  static std::unique_ptr<K> make(Machine machine, const Launch& launch) {
    TENON_CHECK(Internal, launch.form != nullptr, launch.name) << "has no form";
    const auto found = all().find(launch.skeleton);
    TENON_CHECK(Internal, found != all().end(), launch.name) << "no body for skeleton " << launch.skeleton;
    return found->second(std::move(machine), launch, launch.form->copy());
  }

 private:
  static std::map<std::string, Maker>& all() {
    static std::map<std::string, Maker> bodies;
    return bodies;
  }
};

}  // namespace tenon
