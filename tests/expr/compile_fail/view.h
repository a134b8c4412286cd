// A complete view; each macro omits one member.
// without: NAME
// without: INFER
// without: MAP
// without: VJP
#include "tenon/expr/node_type.h"

namespace tenon::nodes {
struct Same : View {
#ifndef WITHOUT_NAME
  static constexpr auto name = "same";
#endif
#ifndef WITHOUT_INFER
  static void infer(std::span<const Expr>, const Attrs&, Shape&) {}
#endif
#ifndef WITHOUT_MAP
  static void map(const Node&, IndexAlgebra& a, Indices c) { a.read(0, c); }
#endif
#ifndef WITHOUT_VJP
  static std::vector<Expr> vjp(const Expr&, const Expr& g) { return {g}; }
#endif
};
}  // namespace tenon::nodes

NODE(Same)
