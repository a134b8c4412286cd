#include "tenon/backend/cuda/driver/driver_api.h"

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

constexpr int kOldestVersion = 12000;  // tensor maps, cuLaunchKernelEx, sm_90a

LoadedLibrary find(const SearchSettings& settings) {
  SearchResult result = load_library(Library::Driver, settings);
  if (result.library) return *std::move(result.library);
  throw Error(ErrorKind::Device, "cuda",
              "no NVIDIA driver: libcuda.so.1 " + (result.problem.empty() ? "not found" : result.problem),
              "install it: " + install_command(Library::Driver, settings) +
                  "; a container must be started with GPU access; --device cpu needs none");
}

std::string cuda_version(int version) { return version_text(Library::Driver, static_cast<size_t>(version)); }

}  // namespace

DriverApi::DriverApi(const SearchSettings& settings) : library_(find(settings)) {
  auto* get_version = library_.function<DriverResult(int*)>("cuDriverGetVersion");
  TENON_CHECK(Device, get_version && get_version(&version_) == kSuccess, "cuda")
      << path().string() << " reports no version: it is not NVIDIA's driver";
  if (version_ < kOldestVersion)
    throw Error(ErrorKind::Device, "cuda",
                "the driver is too old: it supports CUDA " + cuda_version(version_) + ", but " +
                    cuda_version(kOldestVersion) + " (driver 525) or newer is needed",
                "update it: " + install_command(Library::Driver, settings));
#define TENON_DRIVER_BIND(member, name, parameters)          \
  member = library_.function<DriverResult parameters>(name); \
  TENON_CHECK(Device, member != nullptr, "cuda")             \
      << path().string() << " has no " name ": the driver is damaged or older than it says";
  TENON_DRIVER_FUNCTIONS(TENON_DRIVER_BIND)
#undef TENON_DRIVER_BIND
}

std::string DriverApi::describe(DriverResult result) const {
  const char *name = nullptr, *text = nullptr;
  error_name(result, &name);
  error_text(result, &text);
  return (name ? std::string(name) : "error " + std::to_string(result)) + (text ? std::string(": ") + text : "");
}

}  // namespace tenon::cuda
