#include "tenon/backend/cuda/libraries/cublaslt_api.h"

#include "tenon/core/error.h"

namespace tenon::cuda::lt {

Api::Api(LoadedLibrary library) : library_(std::move(library)) {
  const auto damaged = [this](const char* name) {
    throw Error(ErrorKind::Device, "cuBLASLt", library_.path().string() + " has no " + name + ": it is damaged");
  };
#define TENON_CUBLASLT_BIND(member, parameters)                      \
  member = library_.function<Status parameters>("cublasLt" #member); \
  if (!member) damaged("cublasLt" #member);
  TENON_CUBLASLT_FUNCTIONS(TENON_CUBLASLT_BIND)
#undef TENON_CUBLASLT_BIND
  status_name_ = library_.function<const char*(Status)>("cublasLtGetStatusName");
  if (!status_name_) damaged("cublasLtGetStatusName");
  version_ = library_version(Library::CublasLt, library_);
}

void Api::check(Status status, const std::string& where) const {
  if (status == kSuccess) return;
  const char* name = status_name_(status);
  throw Error(ErrorKind::Device, "cuBLASLt " + version_,
              where + ": " + (name ? name : "status " + std::to_string(status)));
}

}  // namespace tenon::cuda::lt
