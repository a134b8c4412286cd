// The null backend records launches instead of running them, so plans can be tested without a device.
#pragma once
#include <string>
#include <vector>

#include "tenon/backend/backend.h"

namespace tenon::null {

/// Names of the launches that null kernels of this process ran, oldest first.
std::vector<std::string> record();
/// Clears that record.
void clear_record();

}  // namespace tenon::null
