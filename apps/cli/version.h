// Version and build of this binary.
#pragma once
#include <string>

namespace tenon::cli {

/// "0.1.0".
std::string version();
/// The commit that was built, with "+" if files were changed; "unknown" without git.
std::string commit();
/// "tenon 0.1.0 (1a2b3c4, gcc 12.2.0, Release)".
std::string version_text();
/// "gcc 12.2.0".
std::string compiler();
std::string build_type();
/// The processor's name and the number of processors available to this process.
std::string machine();
/// Today, UTC: "2026-11-21".
std::string today();

}  // namespace tenon::cli
