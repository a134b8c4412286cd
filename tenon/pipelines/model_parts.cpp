#include "tenon/pipelines/model_parts.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/similar.h"

namespace tenon {

std::vector<std::string> ModelParts::parts_named(const std::string& part) const {
  std::vector<std::string> all = parts();
  if (part.empty()) return {default_part()};
  if (part == "all") return all;
  if (std::ranges::find(all, part) != all.end()) return {part};
  std::string known = "all";
  for (const std::string& p : all) known += ", " + p;
  all.emplace_back("all");
  throw Error(ErrorKind::Usage, "--part", "'" + part + "' is no part of " + name() + "; its parts are " + known,
              did_you_mean(part, all));
}

std::vector<NamedNetwork> ModelParts::networks() const {
  std::vector<NamedNetwork> out;
  for (const std::string& part : parts()) out.push_back({component(part), shapes(part)});
  return out;
}

std::shared_ptr<const ModelParts> open_parts(const std::string& spec) { return open_as<ModelParts>(spec); }

}  // namespace tenon
