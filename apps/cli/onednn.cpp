#include "apps/cli/onednn.h"

#include <dlfcn.h>

namespace tenon::cli::onednn {
namespace {

constexpr const char* kLibrary = "libdnnl.so.2";
constexpr const char* kPackage = " (Debian 12: apt-get install libdnnl2)";

// Resolves the library's functions; returns an empty string, or what is wrong.
std::string bind(void* handle, Api& api) {
#define TENON_ONEDNN_BIND(member, result, parameters)                                  \
  api.member = reinterpret_cast<result(*) parameters>(dlsym(handle, "dnnl_" #member)); \
  if (!api.member) return std::string(kLibrary) + " has no dnnl_" #member + std::string(kPackage);
  TENON_ONEDNN_FUNCTIONS(TENON_ONEDNN_BIND)
#undef TENON_ONEDNN_BIND
  api.set_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "omp_set_num_threads"));
  const Version& v = *api.version();
  api.version_text = std::to_string(v.major) + "." + std::to_string(v.minor) + "." + std::to_string(v.patch);
  return {};
}

Found load() {
  void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* error = dlerror();
    return {nullptr, (error ? error : kLibrary) + std::string(kPackage)};
  }
  static Api api;
  std::string problem = bind(handle, api);
  return {problem.empty() ? &api : nullptr, std::move(problem)};
}

}  // namespace

const Found& find() {
  static const Found found = load();
  return found;
}

}  // namespace tenon::cli::onednn
