#include "tenon/backend/cuda/products/tile_choice.h"

#include <algorithm>

#include "tenon/backend/cuda/products/tile_table.h"
#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

template <class Takes>
std::vector<TileChoice> choices_of(const ProductShape& p, const DeviceFacts& facts, const Takes& takes) {
  std::vector<TileChoice> out;
  for (const ProductCore* core : product_cores()) {
    if (!takes(*core) || (p.branches && !core->adds_branch()) || (p.behind_norm && !core->applies_norm())) continue;
    for (TileChoice& choice : core->choices(p, facts)) {
      choice.core = core;
      out.push_back(std::move(choice));
    }
  }
  return out;
}

bool library_allowed(const ProductCore& core) { return core.library() && core_allowed(core.name()); }

}  // namespace

std::vector<TileChoice> tile_choices(const ProductShape& p, const DeviceFacts& facts) {
  std::vector<TileChoice> out =
      choices_of(p, facts, [](const ProductCore& core) { return !core.library() && core_allowed(core.name()); });
  if (out.empty())  // the selected core cannot do it
    out = choices_of(p, facts, [](const ProductCore& core) { return core.stands_in(); });
  std::stable_sort(out.begin(), out.end(), [](const TileChoice& a, const TileChoice& b) { return a.time < b.time; });
  return out;
}

std::vector<TileChoice> library_choices(const ProductShape& p, const DeviceFacts& facts) {
  return p.epilogue.empty() ? std::vector<TileChoice>() : choices_of(p, facts, library_allowed);
}

std::optional<TileChoice> possible_choice(const std::optional<std::string>& line, const ProductShape& p,
                                          const std::vector<TileChoice>& own) {
  const std::optional<TileChoice> measured = line ? TileChoice::parse(*line) : std::nullopt;
  if (!measured) return std::nullopt;
  if (measured->core->library())
    return library_allowed(*measured->core) && measured->core->runs(*measured, p) ? measured : std::nullopt;
  const auto same = std::find_if(own.begin(), own.end(), [&](const TileChoice& c) { return c.same_as(*measured); });
  return same == own.end() ? std::nullopt : std::optional(*same);
}

TileChoice choose_tile(const ProductShape& p, const DeviceFacts& facts) {
  const std::vector<TileChoice> own = tile_choices(p, facts);
  TENON_CHECK(Internal, !own.empty(), p.key) << "no core can compute it";
  const TileTable& table = TileTable::of(facts);
  const auto all = product_cores();
  if (!p.epilogue.empty() && std::ranges::any_of(all, [](const ProductCore* c) { return library_allowed(*c); })) {
    const std::optional<TileChoice> measured = possible_choice(table.find(p.epilogue_key()), p, own);
    const bool asked = std::ranges::any_of(all, [](const ProductCore* c) { return library_asked(c->name()); });
    if (measured && (!asked || measured->core->library())) return *measured;
    if (asked)
      if (const std::vector<TileChoice> theirs = library_choices(p, facts); !theirs.empty()) return theirs.front();
  }
  for (const std::string& key : {p.key, p.like})
    if (const std::optional<TileChoice> measured = possible_choice(table.find(key), p, own)) return *measured;
  return own.front();
}

}  // namespace tenon::cuda
