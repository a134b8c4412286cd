#include "tenon/backend/cuda/libraries/cudnn_check.h"

#include <dlfcn.h>

#include "tenon/backend/cuda/libraries/cudnn.h"
#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"

namespace tenon::cuda {
namespace fs = std::filesystem;
namespace {

// cuDNN compiles engines only if it finds libcuda.so.1. On a machine without a driver, a toolkit's stub works, whose
// soname is the same.
bool has_driver(const SearchSettings& settings) {
  constexpr const char* kName = "libcuda.so.1";
  if (dlopen(kName, RTLD_NOW | RTLD_LOCAL)) return true;
  for (const fs::path& folder : library_folders(settings))
    if (!folder.empty() && dlopen((folder / "stubs/libcuda.so").c_str(), RTLD_NOW | RTLD_LOCAL) &&
        dlopen(kName, RTLD_NOW | RTLD_LOCAL))
      return true;
  return false;
}

}  // namespace

CudnnCheck::CudnnCheck(const SearchSettings& settings, const DeviceFacts& facts)
    : api_(std::make_shared<CudnnApi>(settings)), planner_(api_, facts), compiles_(has_driver(settings)) {
  planned_.library = cudnn_name(*api_);
  if (!compiles_)
    spdlog::warn(
        "found neither a driver nor a toolkit's stubs/libcuda.so: cuDNN's plans for attention are not checked");
}

void CudnnCheck::plan(const DnnProblem& problem) {
  if (std::holds_alternative<DnnAttention>(problem) && !compiles_) return;
  const std::string text = describe(problem);
  if (!seen_.insert(text).second) return;
  const auto begin = Clock::now();
  PlannedCalls::Call& verdict = planned_.calls.emplace_back();
  verdict.problem = text;
  verdict.why_not = "no deterministic engine";
  try {
    for (CudnnConfig& config : planner_.configs(problem)) {
      if (!verdict.engine.empty()) break;
      try {
        verdict.engine = CudnnPlan(std::move(config)).engine();
      } catch (const Error& e) {
        verdict.why_not = e.what();
      }
    }
  } catch (const Error& e) {
    verdict.why_not = e.what();
  }
  if (!verdict.engine.empty()) verdict.why_not.clear();
  planned_.seconds += seconds_since(begin);
}

}  // namespace tenon::cuda
