// Plans as golden text.
#pragma once
#include <string>

#include "tenon/plan/plan.h"

namespace tenon {

/// One line per launch: skeleton, name, and what is computed from what, in the order of the body.
std::string summary(const Plan& plan);
/// EXPECTs the text of tests/golden/NAME; writes it instead if TENON_UPDATE_GOLDEN is set.
void expect_golden(const std::string& name, const std::string& text);

}  // namespace tenon
