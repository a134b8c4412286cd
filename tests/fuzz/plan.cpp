// Any bytes as the text of a plan: either an Error(Usage) that names a line, or a plan whose text round-trips.
#include <cstdlib>
#include <string_view>

#include "tenon/core/error.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/explain/plan_diff.h"
#include "tenon/plan/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  Plan plan;
  try {
    plan = parse_plan(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error& e) {
    // Sizes beyond all memory are refused by the memory plan.
    if (e.kind() != ErrorKind::Usage && e.kind() != ErrorKind::Memory) std::abort();
    return 0;
  }
  const std::string text = print_plan(plan);
  const Plan again = parse_plan(text);
  if (print_plan(again) != text || !diff_plans(plan, again).empty()) std::abort();
  return 0;
}
