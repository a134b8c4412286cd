#include "tenon/expr/state.h"

#include "tenon/expr/ops.h"

namespace tenon {

bool is_update(const Expr& e) { return e->family() == Family::Sink; }

Expr state_of(Expr e) {
  while (is_update(e)) e = e->in[0];
  return e.is<nodes::State>() ? e : Expr();
}

int64_t version_of(Expr e) {
  int64_t version = 0;
  for (; is_update(e); e = e->in[0]) ++version;
  return version + (e->attrs.ints.size() > 1 ? e->attrs.ints[1] : 0);
}

Expr state_leaf(Graph& g, const Expr& value) {
  Attrs attrs = state_of(value)->attrs;
  attrs.ints.resize(1);
  if (const int64_t version = version_of(value)) attrs.ints.push_back(version);
  return g.make(node_type<nodes::State>(), {}, attrs);
}

std::vector<Expr> needed_for(const Expr& value) {
  if (!is_update(value)) return {value};
  return {value->in.begin() + 1, value->in.end()};
}

std::vector<Expr> below(std::span<const Expr> values) {
  std::vector<Expr> out;
  walk({values.begin(), values.end()}, [&](const Expr& e) {
    out.push_back(e);
    return std::span(e->in).subspan(is_update(e) ? 1 : 0);
  });
  return out;
}

const Expr& written_by(const Expr& value) { return is_update(value) ? value->in.back() : value; }

}  // namespace tenon
