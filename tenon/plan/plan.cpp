#include "tenon/plan/plan.h"

#include "tenon/core/error.h"

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

}  // namespace tenon
