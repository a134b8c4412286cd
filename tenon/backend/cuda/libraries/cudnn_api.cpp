#include "tenon/backend/cuda/libraries/cudnn_api.h"

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

constexpr size_t kOldestCudnn = 91301;  // attention as one operation; plans for a device that is only described

}  // namespace

CudnnApi::CudnnApi(const SearchSettings& settings) : library_(need_library(Library::Cudnn, "", settings)) {
#define TENON_CUDNN_BIND(member, name, result, parameters) \
  member = library_.function<result parameters>(name);     \
  TENON_CHECK(Device, member != nullptr, "cudnn") << path().string() << " has no " name;
  TENON_CUDNN_FUNCTIONS(TENON_CUDNN_BIND)
#undef TENON_CUDNN_BIND
  version_ = get_version();
  if (version_ < kOldestCudnn)
    throw Error(ErrorKind::Device, "cudnn",
                path().string() + " is version " + version_text(Library::Cudnn, version_) + ", but " +
                    version_text(Library::Cudnn, kOldestCudnn) + " or newer is needed",
                "install it: " + install_command(Library::Cudnn, settings));
}

void CudnnApi::check(CudnnStatus status, const std::string& action) const {
  if (status == kCudnnSuccess) return;
  char words[1024] = {};
  last_error(words, sizeof(words));
  const char* name = error_text(status);
  throw Error(ErrorKind::Device, "cudnn",
              "cannot " + action + ": " + (name ? name : "error " + std::to_string(status)) +
                  (*words ? std::string(": ") + words : ""));
}

}  // namespace tenon::cuda
