#include "folders.h"

#include "tenon/core/error.h"
#include "tenon/core/options.h"
#include "tenon/pipelines/model.h"

namespace tenon::cli {
namespace fs = std::filesystem;

std::string default_model_text() {
  try {
    return default_model_folder().string();
  } catch (const Error& e) {
    return e.what();
  }
}

fs::path cache_folder() {
  if (const std::string own = option(Option::CacheDir); !own.empty()) return own;
  if (const std::string base = option(Option::XdgCacheHome); !base.empty()) return fs::path(base) / "tenon";
  return fs::path(option(Option::Home)) / ".cache/tenon";
}

}  // namespace tenon::cli
