// How much device memory a pipeline may take: sizes as users write them, and the limit for its networks if weights are
// offloaded to the host.
#pragma once
#include <optional>
#include <string>

#include "tenon/backend/backend.h"
#include "tenon/backend/offload.h"

namespace tenon {

/// Stands for the memory that is free on the device when asked, minus a tenth for what is not planned: code, libraries.
inline constexpr int64_t kOffloadAutomatically = 0;

/// Bytes of "10GB", "800MiB", "1e9B", "12" (GiB). Error(Usage) at `where` for anything else; the message names these
/// forms and `or_else`.
int64_t parse_size(const std::string& text, const std::string& where, const std::string& or_else = "");
/// Like parse_size, and also accepts "auto".
int64_t parse_offload(const std::string& text, const std::string& where);

/// The limit on a given backend; empty if none was asked for. Error(Usage) if the backend has no memory of its own.
std::optional<Offload> offload_on(const Backend& backend, std::optional<int64_t> bytes);

}  // namespace tenon
