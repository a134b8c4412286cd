#include "tenon/backend/uniform.h"

#include <algorithm>

#include "tenon/backend/forms.h"
#include "tenon/kernels/view_facts.h"

namespace tenon {

Origin origin_of(const Expr& e) {
  if (e->family() == Family::Leaf && acc_lane(e) >= 0) return Origin::Accumulator;
  if (literal_of(e)) return Origin::Literal;
  const bool view = e->family() == Family::Leaf || (e->family() == Family::View && is_view_chain(e));
  return view ? Origin::Memory : Origin::Computed;
}

bool uniform_view(const Expr& view, const Shape& domain, int split,
                  const std::optional<std::vector<AffinePiece>>& pieces) {
  if (!pieces) return view.shape().cols() == 1 && split == domain.rank() - 1;
  return pieces->size() == 1 && std::ranges::all_of(pieces->front().cols, [](const Digit& d) { return d.stride == 0; });
}

bool UniformValues::contains(const Expr& e, FunctionRef<bool(const Expr& view)> loaded) {
  if (const auto it = known_.find(e.get()); it != known_.end()) return it->second;
  bool yes = false;
  switch (origin_of(e)) {
    case Origin::Accumulator:
      break;
    case Origin::Literal:
      yes = true;
      break;
    case Origin::Memory:
      yes = loaded(e);
      break;
    case Origin::Computed:
      yes = e->family() == Family::Reduce ||
            std::ranges::all_of(e->in, [&](const Expr& x) { return contains(x, loaded); });
  }
  return known_[e.get()] = yes;
}

}  // namespace tenon
