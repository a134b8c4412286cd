#include "apps/cli/folders.h"

#include "tenon/core/error.h"
#include "tenon/pipelines/model_files.h"

namespace tenon::cli {

std::string default_model_text() {
  try {
    return default_model_folder().string();
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace tenon::cli
