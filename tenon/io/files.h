// Whole files: reading and hashing. (Writing is core's: atomic_file.h.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/atomic_file.h"

namespace tenon {

/// Bytes of a file that is read as a whole: a tokenizer, a configuration, an index.
inline constexpr size_t kMaxFileBytes = 100'000'000;

/// The bytes of a regular file; Error(Model) names the path and the reason if it cannot be read or has more than
/// `most`.
std::string read_file(const std::filesystem::path& path, size_t most = kMaxFileBytes);

/// read_file of a file that a user named in an argument (a picture, a prompt): Error(Usage), as no model is at fault.
std::string read_argument_file(const std::filesystem::path& path, size_t most = kMaxFileBytes);

/// Whether there is a file or folder of that name. Error(Model) where that cannot be told (a folder without access, a
/// loop of links), and for a link to nothing: what somebody put there would be passed by in silence.
bool file_exists(const std::filesystem::path& path);
/// file_exists, and it is a folder.
bool folder_exists(const std::filesystem::path& path);
/// What is in a folder, sorted; Error(Model) if it cannot be read.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

/// SHA-256 in lower-case hex.
std::string sha256_hex(std::span<const std::byte> bytes);
/// SHA-256 of a file's content, read in pieces; Error(Model) as read_file.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace tenon
