#include "tenon/kernels/skeleton.h"

#include <algorithm>

#include "tenon/core/error.h"

namespace tenon {
namespace {
std::vector<const Skeleton*>& registry() {
  static std::vector<const Skeleton*> all;
  return all;
}
}  // namespace

void register_skeleton(const Skeleton* s) {
  auto& all = registry();
  all.push_back(s);
  std::sort(all.begin(), all.end(), [](const Skeleton* a, const Skeleton* b) {
    return a->preference() != b->preference() ? a->preference() < b->preference() : a->name() < b->name();
  });
}

std::span<const Skeleton* const> skeletons() { return registry(); }

const Skeleton& skeleton(std::string_view name) {
  std::string known;
  for (const Skeleton* s : registry()) {
    if (s->name() == name) return *s;
    known += (known.empty() ? "" : ", ") + std::string(s->name());
  }
  throw Error(ErrorKind::Usage, "skeleton", "no skeleton '" + std::string(name) + "'; expected one of " + known);
}

Choice choose_skeleton(const Launch& launch) {
  Choice choice;
  FormResult result = make_form(launch);
  choice.refusal = result.refusal;
  if (!result.form) return choice;
  for (const Skeleton* s : registry()) {
    if (!s->serves(result.form->anchor)) continue;
    const std::optional<std::string> reason = s->legal(*result.form);
    if (!reason) {
      choice.skeleton = s;
      choice.refusal = {};
      choice.form = std::move(result.form);
      return choice;
    }
    choice.refusal = {std::string(s->name()) + ": " + *reason, {}};
  }
  if (choice.refusal.why.empty()) choice.refusal.why = "no skeleton serves this anchor";
  return choice;
}

}  // namespace tenon
