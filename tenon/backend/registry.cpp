#include <algorithm>
#include <charconv>
#include <map>

#include "tenon/backend/backend.h"
#include "tenon/core/error.h"
#include "tenon/core/similar.h"

namespace tenon {
namespace {
struct Registered {
  BackendFactory make;
  BackendProbe probe;
  AutomaticChoice automatic;
};
std::map<std::string, Registered>& registry() {
  static std::map<std::string, Registered> backends;
  return backends;
}

bool is_any_gpu(const std::string& name) { return name == "gpu" || name == "GPU"; }

// Splits "cuda:1" into the backend and its device number. The number is -1 if it is absent or malformed.
std::pair<std::string, int> with_ordinal(const std::string& name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string::npos) return {name, -1};
  int ordinal = -1;
  const char *begin = name.data() + colon + 1, *end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, ordinal);
  const bool number = begin != end && *begin != '-' && error == std::errc() && rest == end;
  return {number ? name.substr(0, colon) : name, number ? ordinal : -1};
}

// Hint for a name that is no backend but may mean a kind of device: suggests the backend whose device is probed for.
std::string hint_of_a_gpu() {
  for (const auto& [name, registered] : registry())
    if (registered.automatic.look) return "did you mean '" + name + "'?";
  return {};
}
}  // namespace

RegisterBackend::RegisterBackend(std::string name, BackendFactory factory, BackendProbe probe,
                                 AutomaticChoice automatic) {
  registry().emplace(std::move(name), Registered{std::move(factory), std::move(probe), std::move(automatic)});
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const auto& [name, registered] : registry()) names.push_back(name);
  return names;
}

std::vector<BackendFact> probe_backend(const std::string& name) {
  const auto it = registry().find(name);
  return it != registry().end() && it->second.probe ? it->second.probe() : std::vector<BackendFact>{};
}

ChosenBackend choose_backend() {
  std::vector<std::pair<std::string, const AutomaticChoice*>> all;
  for (const auto& [name, registered] : registry())
    if (registered.automatic.preference > 0) all.emplace_back(name, &registered.automatic);
  std::ranges::sort(all, [](const auto& a, const auto& b) { return a.second->preference > b.second->preference; });
  ChosenBackend out;
  for (const auto& [name, automatic] : all) {
    const Availability found = automatic->look ? automatic->look() : Availability{};
    const bool usable = !automatic->look || (!found.device.empty() && found.problem.empty());
    if (usable) {
      out.name = name;
      out.device = found.device;
      return out;
    }
    if (!found.device.empty() && out.problem.empty()) out.problem = found.device + " is not used: " + found.problem;
  }
  throw Error(ErrorKind::Device, "device", "no backend of this build can be used");
}

void check_type(const Backend& backend, DType type, const std::string& where) {
  const std::vector<DType> known = backend.types();
  TENON_CHECK(Usage, std::ranges::find(known, type) != known.end(), where)
      << name_of(type) << " is not supported by " << backend.name();
}

void check_offloads(const Backend& backend) {
  TENON_CHECK(Usage, backend.offloads(), "offload") << "weights on " << backend.name() << " are already in host memory";
}

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options) {
  if (name == kAutomaticDevice) return make_backend(choose_backend().name, options);
  const auto [plain, ordinal] = with_ordinal(name);
  const auto it = registry().find(plain);
  if (it != registry().end()) {
    BackendOptions numbered = options;
    if (ordinal >= 0) numbered.ordinal = ordinal;
    // Only a backend whose devices are probed for can have several.
    TENON_CHECK(Device, numbered.ordinal == 0 || it->second.automatic.look, "device")
        << "no device " << numbered.ordinal << ": '" << plain << "' has only one";
    return it->second.make(numbered);
  }
  std::vector<std::string> known = backend_names();
  std::string list(kAutomaticDevice);
  for (const std::string& n : known) list += ", " + n;
  known.emplace_back(kAutomaticDevice);
  throw Error(ErrorKind::Device, "device", "no backend '" + name + "'; expected one of " + list,
              is_any_gpu(name) ? hint_of_a_gpu() : did_you_mean(name, known));
}

}  // namespace tenon
