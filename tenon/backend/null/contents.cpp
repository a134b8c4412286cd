#include "tenon/backend/null/contents.h"

#include "tenon/core/error.h"

namespace tenon::null {
namespace {
uintptr_t first(const void* address) { return reinterpret_cast<uintptr_t>(address); }
}  // namespace

void Contents::promise(const Touched& t) {
  const std::lock_guard lock(mutex_);
  if (t.version < 0) promised_.emplace(first(t.address), t.buffer);
}

void Contents::read(const Touched& t, const TouchingRun& by) const {
  const std::lock_guard lock(mutex_);
  const uintptr_t begin = first(t.address), end = begin + static_cast<uintptr_t>(t.bytes);
  auto it = parts_.upper_bound(begin);
  if (it != parts_.begin() && std::prev(it)->second.end > begin) --it;
  const bool written = it != parts_.end() && it->first < end;
  TENON_CHECK(Internal, t.bytes == 0 || written || !promised_.contains({begin, t.buffer}), by.launch)
      << "reads '" << t.buffer << "', which nothing has written";
  bool updated = false;  // by this run
  for (; it != parts_.end() && it->first < end; ++it) {
    const Part& p = it->second;
    TENON_CHECK(Internal, p.by.group != by.group || p.buffer == t.buffer, by.launch)
        << "reads '" << t.buffer << "', which '" << p.by.launch << "' has overwritten with '" << p.buffer << "'";
    if (t.version < 0) continue;
    updated = p.by.group == by.group && p.by.run == by.run;
    TENON_CHECK(Internal, updated ? p.version == t.version : t.version == 0, by.launch)
        << "reads '" << t.buffer << "' after " << t.version << " updates, but it has had " << (updated ? p.version : 0);
  }
  TENON_CHECK(Internal, t.version <= 0 || updated, by.launch)
      << "reads '" << t.buffer << "' after " << t.version << " updates, but it has had none";
}

void Contents::write(const Touched& t, const TouchingRun& by) {
  if (t.bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const uintptr_t begin = first(t.address), end = begin + static_cast<uintptr_t>(t.bytes);
  cut(begin, end);
  parts_[begin] = {end, t.buffer, t.version, by};
}

void Contents::forget(const void* address, int64_t bytes, bool all) {
  const std::lock_guard lock(mutex_);
  const uintptr_t begin = first(address), end = begin + static_cast<uintptr_t>(bytes);
  cut(begin, end);
  if (all) promised_.erase(promised_.lower_bound({begin, {}}), promised_.lower_bound({end, {}}));
}

// Removes everything in [begin, end).
void Contents::cut(uintptr_t begin, uintptr_t end) {
  auto it = parts_.upper_bound(begin);
  if (it != parts_.begin()) --it;
  while (it != parts_.end() && it->first < end) {
    const uintptr_t from = it->first;
    const Part p = it->second;
    it = parts_.erase(it);
    if (p.end <= begin) {
      parts_[from] = p;
      continue;
    }
    if (from < begin) (parts_[from] = p).end = begin;
    if (p.end > end) it = std::next(parts_.emplace(end, p).first);
  }
}

}  // namespace tenon::null
