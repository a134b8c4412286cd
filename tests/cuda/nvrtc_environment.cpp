#include "tests/cuda/nvrtc_environment.h"

#include <optional>
#include <utility>

#include "tenon/backend/cuda/driver/kernel_cache.h"
#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon::cuda::test {

SearchSettings nvrtc_settings() {
  SearchSettings settings = SearchSettings::from_environment();
  settings.own_environment = TENON_SOURCE_DIR "/build/cuda-env";  // tools/setup.sh
  return settings;
}

const FoundNvrtc& find_nvrtc() {
  static const FoundNvrtc found = [] {
    try {
      return FoundNvrtc{std::make_shared<const Nvrtc>(nvrtc_settings()), {}};
    } catch (const Error& e) {
      return FoundNvrtc{nullptr, e.what()};
    }
  }();
  return found;
}

std::filesystem::path kept_kernels() { return cached("tests/kernels"); }

KernelBinary machine_code(const KernelSource& source, const std::string& arch) {
  const KernelCache cache(kept_kernels());
  const Nvrtc& nvrtc = *find_nvrtc().nvrtc;
  const std::string key = kernel_key(source, arch, nvrtc.version());
  if (std::optional<KernelBinary> kept = cache.find(key)) return *std::move(kept);
  KernelBinary made = nvrtc.compile(source, arch);
  cache.store(key, made);
  return made;
}

KernelSource plain_kernel(const std::string& name, const std::string& parameters, const std::string& body,
                          int threads) {
  return {name, "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(threads) + ") tenon_kernel(" +
                    parameters + ") {\n" + body + "\n}\n"};
}

}  // namespace tenon::cuda::test
