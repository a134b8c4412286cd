// Any bytes as the text of an expression: either an Error(Usage), or nodes whose text parses to the same nodes. Small
// ones are then evaluated and differentiated, so that no shape or attribute that a node accepts leads out of bounds.
#include <cstdlib>

#include "tenon/expr/ops.h"
#include "tenon/expr/vjp.h"
#include "tenon/oracle/oracle.h"

namespace {
using namespace tenon;

// Few nodes with few elements, and anchors with few products.
bool is_small(std::span<const Expr> roots) {
  const std::vector<Expr> nodes = topological(roots);
  double elements = 0, products = 0;
  for (const Expr& e : nodes) {
    elements += static_cast<double>(e.shape().numel());
    if (e->family() == Family::Anchor)
      products += static_cast<double>(e.shape().numel()) * static_cast<double>(e->in[1].shape().numel());
  }
  return nodes.size() <= 64 && elements <= 4096 && products <= 1e5;
}

void use(const Expr& y) {
  Oracle oracle([](const Expr& leaf) { return std::vector<double>(static_cast<size_t>(leaf.shape().numel())); });
  if (y->family() == Family::Sink) {
    oracle.eval(y);
    return;
  }
  if (static_cast<int64_t>(oracle.eval(y).size()) != y.shape().numel()) std::abort();
  std::vector<Expr> leaves;
  for (const Expr& e : topological(std::array{y}))
    if (is_memory_leaf(e) && is_float(e.dtype())) leaves.push_back(e);
  const std::vector<Expr> grads = gradients(y, {}, leaves);
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].shape() != leaves[i].shape()) std::abort();
  if (is_small(grads))
    for (const Expr& g : grads) oracle.eval(g);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Graph g, again;
  std::vector<Expr> roots;
  try {
    roots = parse(g, std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Usage) std::abort();
    return 0;
  }
  const std::string text = print(roots);
  if (print(parse(again, text)) != text || parse(g, text) != roots) std::abort();
  if (!is_small(roots)) return 0;
  for (const Expr& y : roots) try {
      use(y);
    } catch (const Error& e) {
      // A wrong sink, a missing gradient rule, an index out of range: all the user's errors. Too large: the memory
      // plan's.
      if (e.kind() == ErrorKind::Internal) std::abort();
    }
  return 0;
}
