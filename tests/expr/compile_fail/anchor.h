// A complete anchor; each macro omits one member.
// without: NAME
// without: INFER
// without: REFERENCE
#include "tenon/expr/node_type.h"

namespace tenon::nodes {
struct Copy : Anchor {
  static constexpr int kArity = 1;
#ifndef WITHOUT_NAME
  static constexpr auto name = "copy";
#endif
#ifndef WITHOUT_INFER
  static void infer(std::span<const Expr>, const Attrs&, Shape&) {}
#endif
#ifndef WITHOUT_REFERENCE
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    std::copy_n(in[0], n.shape.numel(), out);
  }
#endif
};
}  // namespace tenon::nodes

NODE(Copy)
