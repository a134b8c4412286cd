// Memory of the host: blocks from the system, and how much is left.
#pragma once
#include <cstdint>
#include <memory>

namespace tenon::cpu {

/// Zero-filled memory straight from the system, 64-byte aligned; blocks of 2 MiB and more start on a huge page and ask
/// for them. Throws Error(Memory).
std::shared_ptr<void> allocate_host(int64_t bytes);
/// Bytes that may still be taken: the least of MemAvailable and what the control group allows.
int64_t host_memory_available();

}  // namespace tenon::cpu
