// A list of types and a loop over it.
#pragma once

namespace tenon {

template <class... T>
struct TypeList {
  /// Calls f.template operator()<T>() for every type, in order.
  template <class F>
  static void for_each(F&& f) {
    (f.template operator()<T>(), ...);
  }
};

}  // namespace tenon
