// A complete anchor and a complete sink; each macro leaves one member out.
// without: NAME
// without: INFER
// without: REFERENCE
// without: EXPAND
#include "tenon/expr/node_type.h"

namespace tenon::nodes {
struct Copy : Anchor {
  static constexpr int kArity = 1;
#ifndef WITHOUT_NAME
  static constexpr auto name = "copy";
#endif
#ifndef WITHOUT_INFER
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape, DType& dtype) {
    shape = in[0].shape();
    dtype = DType::F32;
  }
#endif
#ifndef WITHOUT_REFERENCE
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    std::copy_n(in[0], n.shape.numel(), out);
  }
#endif
};

struct Keep : Sink {
  static constexpr auto name = "keep";
  static constexpr int kArity = 1;
#ifndef WITHOUT_EXPAND
  static std::vector<SinkOutput> expand(const Node& n) { return {{n.attrs.text, n.in[0]}}; }
#endif
};
}  // namespace tenon::nodes

NODE(Copy)
NODE(Keep)
