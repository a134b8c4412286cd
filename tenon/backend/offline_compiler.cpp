#include "tenon/backend/offline_compiler.h"

#include <map>

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {
namespace {
std::map<std::string, OfflineFactory>& compilers() {
  static std::map<std::string, OfflineFactory> all;
  return all;
}
}  // namespace

RegisterOfflineCompiler::RegisterOfflineCompiler(std::string backend, OfflineFactory factory) {
  compilers().emplace(std::move(backend), std::move(factory));
}

std::unique_ptr<OfflineCompiler> make_offline_compiler(const std::string& backend, const OfflineOptions& options) {
  const auto it = compilers().find(backend);
  if (it != compilers().end()) return it->second(options);
  std::vector<std::string> known;
  for (const auto& [name, factory] : compilers()) known.push_back(name);
  throw Error(ErrorKind::Usage, "offline compiler",
              "expected one of " + joined(known) + ", found '" + backend + "', which compiles for no architecture");
}

}  // namespace tenon
