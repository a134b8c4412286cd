#include <map>

#include "tenon/backend/backend.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {
std::map<std::string, BackendFactory>& registry() {
  static std::map<std::string, BackendFactory> backends;
  return backends;
}
}  // namespace

RegisterBackend::RegisterBackend(std::string name, BackendFactory factory) {
  registry().emplace(std::move(name), std::move(factory));
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry()) names.push_back(name);
  return names;
}

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options) {
  const auto it = registry().find(name);
  if (it != registry().end()) return it->second(options);
  std::string known;
  for (const std::string& n : backend_names()) known += (known.empty() ? "" : ", ") + n;
  throw Error(ErrorKind::Device, "device", "no backend '" + name + "'; expected one of " + known);
}

}  // namespace tenon
