// Memory of the host: blocks from the system, and how much is left.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>

namespace tenon::cpu {

/// Zero-filled memory straight from the system, 64-byte aligned; blocks of 2 MiB and more start on a huge page and ask
/// for them. Throws Error(Memory).
std::shared_ptr<void> allocate_host(int64_t bytes);

/// Blocks of less than 8 MiB side by side, so that they lie in huge pages too: a page that is not huge costs whoever
/// streams through it a walk of the page table each 4 KiB.
class HostBlocks {
 public:
  /// As allocate_host, on a page; a block's memory goes back with it. From any thread; blocks may outlive this.
  std::shared_ptr<void> allocate(int64_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<void> chunk_;
  int64_t used_ = 0;
};

/// Bytes that may still be taken: the least of MemAvailable and what control groups leave, less what is promised.
int64_t host_memory_available();
/// What allocate_host gave that nobody has written to, at least: the system counts it as free until then.
int64_t host_memory_promised();
/// What the control groups of a process leave to it, its own group and all around it, version 1 and 2: `groups` is
/// where hierarchies are mounted (/sys/fs/cgroup), `own` the process's list of its groups (/proc/self/cgroup).
int64_t control_group_available(const std::filesystem::path& groups, const std::filesystem::path& own);

}  // namespace tenon::cpu
