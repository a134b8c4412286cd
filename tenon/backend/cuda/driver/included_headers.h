// Which headers a kernel's source includes, so that caches of compiled kernels forget only those that a change
// concerns.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/function_ref.h"

namespace tenon::cuda {

/// The names that `source` includes in quotes, wherever: an #include that conditions leave out counts as well.
std::vector<std::string> included_names(std::string_view source);

/// The names of all headers that `source` includes, directly or through others. `known` returns what a header includes
/// itself, or null if it is none of ours.
std::set<std::string> all_included(std::string_view source,
                                   FunctionRef<const std::vector<std::string>*(const std::string& name)> known);

}  // namespace tenon::cuda
