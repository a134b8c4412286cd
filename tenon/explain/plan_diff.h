// Compares two plans.
#pragma once
#include <string>

#include "tenon/plan/plan.h"

namespace tenon {

/// Lines that differ, "- " and "+ "; empty if the plans are equal.
std::string diff_plans(const Plan& a, const Plan& b);

}  // namespace tenon
