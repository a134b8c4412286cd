// TENON_DUMP: a folder that receives, as text, what the engine makes between a model and its kernels.
#pragma once
#include <string>
#include <string_view>

namespace tenon {

/// True if TENON_DUMP names a folder.
bool dumping();
/// Writes `text` to the file `name` in the folder of TENON_DUMP, creating folders if necessary. '/' in a name separates
/// folders; characters unsuitable for names become '_'. Replaces an older file. Does nothing unless dumping(). Throws
/// Error(Internal) that names the file if it cannot be written.
void dump(const std::string& name, std::string_view text);

}  // namespace tenon
