// A complete pointwise node; each macro leaves one member out.
// without: NAME
// without: EVAL
// without: VJP
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {
struct Cube : Pointwise<1> {
#ifndef WITHOUT_NAME
  static constexpr auto name = "cube";
#endif
#ifndef WITHOUT_EVAL
  template <class V>
  HD static V eval(V x) {
    return x * x * x;
  }
#endif
#ifndef WITHOUT_VJP
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {g * 3.0 * x * x};
  }
#endif
};
}  // namespace tenon::nodes

NODE(Cube)
