#include "tenon/backend/cuda/products/core_names.h"

#include <map>

#include "tenon/backend/cuda/device.h"
#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon::cuda {
namespace {

std::map<std::string, CoreOf, std::less<>>& core_names() {
  static std::map<std::string, CoreOf, std::less<>> names;
  return names;
}

bool is_library(std::string_view name) {
  const auto found = core_names().find(name);
  return found != core_names().end() && found->second == CoreOf::Library;
}

}  // namespace

void register_core_name(std::string_view name, CoreOf whose) { core_names().emplace(name, whose); }

std::string asked_core() {
  std::string asked = option(Option::CudaCore), known;
  if (asked.empty() || asked == "own" || core_names().contains(asked)) return asked;
  for (const auto& [name, whose] : core_names()) known += (known.empty() ? "" : ", ") + name;
  throw Error(ErrorKind::Usage, "TENON_CUDA_CORE", "expected " + known + " or own, got \"" + asked + "\"");
}

bool core_allowed(std::string_view core) {
  const std::string only = asked_core();
  if (only.empty()) return true;
  if (only == "own") return !is_library(core);
  return is_library(only) || only == core;  // a library runs what it can; everything else as usual
}

bool wgmma_allowed(const DeviceFacts& facts) { return facts.arch == "sm_90a" && core_allowed("wgmma"); }

bool library_asked(std::string_view library) { return is_library(library) && asked_core() == library; }

}  // namespace tenon::cuda
