#include "tenon/kernels/skeleton.h"

#include <map>
#include <utility>

#include "tenon/core/error.h"
#include "tenon/expr/node_type.h"

namespace tenon {
namespace {

// By preference, then name.
using Skeletons = std::map<std::pair<int, std::string_view>, Skeleton>;

Skeletons& registry() {
  static Skeletons all;
  return all;
}

}  // namespace

RegisterSkeleton::RegisterSkeleton(const Skeleton& s) { registry().try_emplace({s.preference, s.name}, s); }

const Skeleton& skeleton(std::string_view name) {
  std::string known;
  for (const auto& [key, s] : registry()) {
    if (s.name == name) return s;
    known += (known.empty() ? "" : ", ") + std::string(s.name);
  }
  throw Error(ErrorKind::Usage, "skeleton", "no skeleton '" + std::string(name) + "'; expected one of " + known);
}

Refusal choose_skeleton(Launch& launch, std::shared_ptr<Graph> graph) {
  launch.form = nullptr;
  FormResult result = make_form(launch, std::move(graph));
  if (!result.form) return result.refusal;
  std::string why = "no skeleton supports this anchor";
  for (const auto& [key, s] : registry()) {
    if (!s.serves(result.form->anchor)) continue;
    const std::string reason = s.legal(*result.form);
    if (reason.empty()) {
      launch.skeleton = s.name;
      launch.form = std::move(result.form);
      return {};
    }
    why = std::string(s.name) + ": " + reason;
  }
  return {why, {}};
}

std::optional<std::string> form_launch(Launch& launch) {
  const Skeleton& s = skeleton(launch.skeleton);
  const Expr anchor = anchor_of(launch);
  if (!s.serves(anchor))
    return "does not support " + (anchor ? std::string(anchor->name()) : std::string("a launch without an anchor"));
  FormResult result = make_form(launch);
  if (!result.form) return result.refusal.why;
  if (std::string reason = s.legal(*result.form); !reason.empty()) return reason;
  launch.form = std::move(result.form);
  return std::nullopt;
}

}  // namespace tenon
