#include "apps/cli/vocabulary.h"

#include <nlohmann/json.hpp>

#include "tenon/core/error.h"
#include "tenon/io/json.h"
#include "tenon/pipelines/model_files.h"

namespace tenon::cli {

KnownWords vocabulary() {
  try {
    return read_known_words(read_json(default_model_folder() / "model_index.json"));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace tenon::cli
