// Files that other processes may read or write at the same time: they see a whole one, the old or the new.
#pragma once
#include <filesystem>
#include <string>

namespace tenon::cuda {

/// Makes `target` a file of these bytes, on the disk before it has the name; the last writer wins. A process that is
/// killed while it writes leaves nothing beside it. 0, or the error number. Its folder must exist.
int publish_file(const std::filesystem::path& target, const std::string& bytes);

}  // namespace tenon::cuda
