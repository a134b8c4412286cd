// The null backend records launches instead of running them, so that plans are tested without a device.
#pragma once
#include <string>
#include <vector>

#include "tenon/backend/backend.h"

namespace tenon::null {

/// Names of the launches that null kernels of this process ran, oldest first.
std::vector<std::string> record();
/// Forgets them.
void clear_record();

}  // namespace tenon::null
