#include "tests/cuda/nvrtc_environment.h"

#include "tenon/core/error.h"

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

KernelSource plain_kernel(const std::string& name, const std::string& parameters, const std::string& body,
                          int threads) {
  return {name, "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(threads) + ") tenon_kernel(" +
                    parameters + ") {\n" + body + "\n}\n"};
}

}  // namespace tenon::cuda::test
