// A complete reduction; each macro omits one member.
// without: NAME
// without: INIT
// without: STEP
// without: VJP
#include "tenon/expr/nodes/broadcast.h"

namespace tenon::nodes {
struct Total : Reduce {
#ifndef WITHOUT_NAME
  static constexpr auto name = "total";
#endif
#ifndef WITHOUT_INIT
  static constexpr double init = 0;
#endif
#ifndef WITHOUT_STEP
  HD static auto step(auto acc, auto x) { return acc + x; }
#endif
#ifndef WITHOUT_VJP
  static std::vector<Expr> vjp(const Expr& node, const Expr& g) { return {broadcast(g, node->in[0].shape())}; }
#endif
};
}  // namespace tenon::nodes

NODE(Total)
