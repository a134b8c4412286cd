// TENON_DUMP: a folder that gets what the engine makes on the way from a model to kernels, as text.
#pragma once
#include <string>
#include <string_view>

namespace tenon {

/// True if TENON_DUMP names a folder.
bool dumping();
/// Writes `text` to the file `name` below the folder of TENON_DUMP, which is made if need be; names may hold '/'
/// (folders), and other characters that do not belong in names become '_'. An older file is replaced. Does nothing if
/// nothing is dumped. Error(Usage) names the file if it cannot be written.
void dump(const std::string& name, std::string_view text);

}  // namespace tenon
