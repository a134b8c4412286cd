#include <map>

#include "tenon/backend/backend.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {
struct Registered {
  BackendFactory make;
  BackendProbe probe;
};
std::map<std::string, Registered>& registry() {
  static std::map<std::string, Registered> backends;
  return backends;
}
}  // namespace

RegisterBackend::RegisterBackend(std::string name, BackendFactory factory, BackendProbe probe) {
  registry().emplace(std::move(name), Registered{std::move(factory), std::move(probe)});
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

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options) {
  const auto it = registry().find(name);
  if (it != registry().end()) return it->second.make(options);
  std::string known;
  for (const std::string& n : backend_names()) known += (known.empty() ? "" : ", ") + n;
  throw Error(ErrorKind::Device, "device", "no backend '" + name + "'; expected one of " + known);
}

}  // namespace tenon
