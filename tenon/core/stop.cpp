#include "tenon/core/stop.h"

#include <utility>

#include "tenon/core/error.h"

namespace tenon {
namespace {
thread_local const StopScope* innermost = nullptr;
}

StopScope::StopScope(StopCheck stop) : stop_(std::move(stop)), outer_(std::exchange(innermost, this)) {}
StopScope::~StopScope() { innermost = outer_; }

StopShield::StopShield() : outer_(std::exchange(innermost, nullptr)) {}
StopShield::~StopShield() { innermost = outer_; }

bool stop_asked() {
  for (const StopScope* s = innermost; s; s = s->outer_)
    if (s->stop_ && s->stop_()) return true;
  return false;
}

void check_stop(std::string_view where) {
  if (stop_asked()) throw Error(ErrorKind::Cancelled, std::string(where), "interrupted");
}

}  // namespace tenon
