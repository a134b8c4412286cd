// Reads and hashes whole files. (For writing see core/atomic_file.h.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/atomic_file.h"

namespace tenon {

/// Largest file that is read as a whole: a tokenizer, a configuration, an index.
inline constexpr size_t kMaxFileBytes = 100'000'000;

/// The bytes of a regular file. Error(Model) names the path and the reason if it cannot be read or is larger than
/// `most`.
std::string read_file(const std::filesystem::path& path, size_t most = kMaxFileBytes);

/// read_file for a file named in a user's argument (a picture, a prompt): Error(Usage), since no model is at fault.
std::string read_argument_file(const std::filesystem::path& path, size_t most = kMaxFileBytes);

/// Whether a file or folder of that name exists. Error(Model) if that cannot be determined (a folder without access, a
/// loop of links), and for a dangling link: skipping it would silently ignore what somebody put there.
bool file_exists(const std::filesystem::path& path);
/// Whether it exists and is a folder.
bool folder_exists(const std::filesystem::path& path);
/// Whether the name ends in one of the extensions, which are in small letters (".png"); the name's may be in any case.
bool has_ending(const std::filesystem::path& path, std::initializer_list<std::string_view> extensions);
/// The entries of a folder, sorted; Error(Model) if it cannot be read.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

/// SHA-256 in lower-case hex.
std::string sha256_hex(std::span<const std::byte> bytes);
/// SHA-256 of a file's contents, read in chunks; Error(Model) as read_file.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace tenon
