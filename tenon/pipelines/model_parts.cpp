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
  throw Error(ErrorKind::Usage, "--part", name() + " has no part '" + part + "'; its parts are " + known,
              did_you_mean(part, all));
}

std::vector<NamedNetwork> ModelParts::networks() const {
  std::vector<NamedNetwork> out;
  for (const std::string& part : parts()) out.push_back({component(part), shapes(part)});
  return out;
}

void check_request(const PartRequest& request, const Requestable& known, const std::string& model) {
  const PartRequest none;
  const auto check = [&](const char* flag, bool given, bool taken) {
    TENON_CHECK(Usage, taken || !given, flag) << "does not apply to " << model;
  };
  check("--width", request.width != none.width, known.size);
  check("--height", request.height != none.height, known.size);
  check("--steps", request.steps != none.steps, known.steps);
  check("--cfg-scale", request.cfg_scale != none.cfg_scale, known.steps);
  check("--context", request.context != none.context, known.context);
}

std::shared_ptr<const ModelParts> open_parts(const std::string& spec) { return open_as<ModelParts>(spec); }

}  // namespace tenon
