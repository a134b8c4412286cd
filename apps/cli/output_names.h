// Output paths of pictures.
#pragma once
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cli {

/// What to do if the file exists already.
inline constexpr const char* kOverwriteHint = "choose another name or give --overwrite";

/// Error(Usage) that names the flag unless the path ends in one of these, which are in small letters (".html").
void check_ending(const std::string& flag, const std::filesystem::path& path,
                  std::initializer_list<std::string_view> endings);

/// Paths of `count` pictures for `spec`, the value of `flag`, numbered from `begin`:
///   ""              output.png; if several output_0.png, output_1.png, ..
///   a folder        0000.png, 0001.png, .. in it (if it exists, or spec ends with '/')
///   "a_%03d.png"    the number in place of %d, %03d, ..; only one such place
///   "a.png"         a.png; if several a_0.png, a_1.png, ..
/// Error(Usage) that names the flag for an extension other than .png or a malformed pattern.
std::vector<std::filesystem::path> output_names(const std::string& flag, const std::string& spec, int count, int begin);

}  // namespace tenon::cli
