// Reads what print_plan prints (plan/text.cpp has the format).
#pragma once
#include <string_view>

#include "tenon/plan/plan.h"

namespace tenon {

/// The plan of this text. Throws Error(Usage) with a line number, also for memory or launches that no planner makes.
Plan parse_plan(std::string_view text);

}  // namespace tenon
