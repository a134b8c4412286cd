// A complete pointwise node; each macro omits one member.
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
  HD static auto eval(auto x) { return x * x * x; }
#endif
#ifndef WITHOUT_VJP
  static auto vjp(auto g, auto x) { return std::array{g * 3.0 * x * x}; }
#endif
};
}  // namespace tenon::nodes

NODE(Cube)
