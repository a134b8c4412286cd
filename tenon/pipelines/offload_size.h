// How much of a device's memory a pipeline may take: sizes as users write them, and its networks' share, where what
// does not fit waits in the host's.
#pragma once
#include <optional>
#include <string>

#include "tenon/backend/offload.h"

namespace tenon {

/// Stands for what the device has free when it is asked, less a tenth for what is not planned: code, libraries.
inline constexpr int64_t kOffloadAutomatically = 0;

/// Bytes of "10GB", "800MiB", "1e9B", "12" (GiB). Error(Usage) of `where` for anything else; it names `or_else` beside
/// them.
int64_t parse_size(const std::string& text, const std::string& where, const std::string& or_else = "");
/// The same, or "auto".
int64_t parse_offload(const std::string& text, const std::string& where);

/// The same in a given backend; nothing if nothing was asked for. Error(Usage) if it has no memory of its own.
std::optional<Offload> offload_on(const Backend& backend, std::optional<int64_t> bytes);

}  // namespace tenon
