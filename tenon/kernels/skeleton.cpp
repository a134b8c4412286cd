#include "tenon/kernels/skeleton.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/node_type.h"

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

Choice choose_skeleton(const Launch& launch, std::shared_ptr<Graph> graph) {
  Choice choice;
  FormResult result = make_form(launch, std::move(graph));
  choice.refusal = result.refusal;
  if (!result.form) return choice;
  for (const Skeleton* s : registry()) {
    if (!s->serves(result.form->anchor)) continue;
    const std::optional<std::string> reason = s->legal(*result.form);
    if (!reason) return {s, {}, std::move(result.form)};
    choice.refusal = {std::string(s->name()) + ": " + *reason, {}};
  }
  if (choice.refusal.why.empty()) choice.refusal.why = "no skeleton supports this anchor";
  return choice;
}

std::optional<std::string> form_launch(Launch& launch) {
  const Skeleton& s = skeleton(launch.skeleton);
  const Expr anchor = anchor_of(launch);
  if (!s.serves(anchor))
    return "does not support " + (anchor ? std::string(anchor->name()) : std::string("a body without an anchor"));
  FormResult result = make_form(launch);
  if (!result.form) return result.refusal.why;
  if (std::optional<std::string> reason = s.legal(*result.form)) return reason;
  launch.form = std::move(result.form);
  return std::nullopt;
}

}  // namespace tenon
