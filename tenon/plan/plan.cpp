#include "tenon/plan/plan.h"

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon {

const Buffer& Plan::buffer(const std::string& buffer_name) const {
  for (const Buffer& b : buffers)
    if (b.name == buffer_name) return b;
  throw Error(ErrorKind::Usage, name, "no buffer '" + buffer_name + "' in this plan");
}

bool Plan::stored(const Launch& launch) const { return buffer(launch.outputs.front().buffer).stored; }

const Phase* Plan::phase(Rate rate) const {
  for (const Phase& p : phases)
    if (p.rate == rate) return &p;
  return nullptr;
}

namespace {
// A launch of the map skeleton that only moves data counts by the kind of view that moves it.
void count_plain(const Launch& launch, PlanCounts& counts) {
  bool maths = false, concat = false, permute = false, upsample = false;
  for (const Expr& e : nodes_of(launch)) {
    maths = maths || (e->family() == Family::Pointwise && !e->type->round);
    concat = concat || e.is<nodes::Concat>();
    permute = permute || e.is<nodes::Permute>();
    upsample = upsample || e.is<nodes::Resize>();
  }
  ++(maths      ? counts.elementwise
     : upsample ? counts.upsample
     : concat   ? counts.concat
     : permute  ? counts.permute
                : counts.elementwise);
}
}  // namespace

PlanCounts Plan::counts(Rate rate) const {
  PlanCounts c;
  if (const Phase* p = phase(rate))
    for (const Launch& l : p->launches) {
      ++c.total;
      if (l.skeleton == "map") count_plain(l, c);
    }
  return c;
}

int64_t Plan::bytes(Rate rate) const {
  int64_t total = 0;
  if (const Phase* p = phase(rate))
    for (const Launch& l : p->launches) total += bytes_moved(l);
  return total;
}

}  // namespace tenon
