// Which class of a backend runs launches of which skeleton. Each backend has one table, to which its classes add
// themselves.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "tenon/backend/forms.h"
#include "tenon/core/error.h"
#include "tenon/kernels/form.h"

namespace tenon {

/// `K`: base class of the backend's launches; `Machine`: what they are made for.
template <class K, class Machine>
class Bodies {
 public:
  using Maker = std::unique_ptr<K> (*)(Machine, const Launch&, Form);

  template <class T>
  static std::unique_ptr<K> body(Machine machine, const Launch& launch, Form form) {
    return std::make_unique<T>(std::move(machine), launch, std::move(form));
  }

  /// One next to each class: `const RegisterBody kRegisteredGemm("gemm", &LaunchBodies::body<GemmKernel>);`
  struct Register {
    Register(std::string skeleton, Maker maker) { all().emplace(std::move(skeleton), maker); }
  };

  /// Makes the kernel of a launch from a copy of its form. Throws Error(Internal) if the launch has no form, or its
  /// skeleton no body.
  static std::unique_ptr<K> make(Machine machine, const Launch& launch) {
    TENON_CHECK(Internal, launch.form != nullptr, launch.name) << "has no form";
    const auto found = all().find(launch.skeleton);
    TENON_CHECK(Internal, found != all().end(), launch.name) << "no body for skeleton " << launch.skeleton;
    return found->second(std::move(machine), launch, own_copy(*launch.form));
  }

 private:
  // A class of its own: GCC and clang name a static variable differently in a function that returns a standard map of
  // strings, and then a program and a library of the two have a table each.
  struct Table : std::map<std::string, Maker> {};
  static Table& all() {
    static Table bodies;
    return bodies;
  }
};

}  // namespace tenon
