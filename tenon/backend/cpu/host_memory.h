// Host memory: allocation from the system, and how much is left.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>

namespace tenon::cpu {

/// Zero-filled memory from the system, 64-byte aligned; blocks of 2 MiB and more start on a huge page and request huge
/// pages. Throws Error(Memory).
std::shared_ptr<void> allocate_host(int64_t bytes);

/// Packs blocks of less than 8 MiB into common chunks, so that they use huge pages too: with 4 KiB pages, streaming
/// through a block costs a page-table walk every 4 KiB.
class HostBlocks {
 public:
  /// As allocate_host, but page-aligned; freeing a block returns its memory. Thread-safe; blocks may outlive this
  /// object.
  std::shared_ptr<void> allocate(int64_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<void> chunk_;
  int64_t used_ = 0;
};

/// Bytes still available: the least of MemAvailable and what control groups allow, minus promised bytes.
int64_t host_memory_available();
/// An estimate of allocate_host's bytes that nothing has written to yet, which the system still counts as free: low by
/// the process's other memory that malloc does not know of, high by what malloc's callers have not written.
int64_t host_memory_promised();
/// What control groups leave to a process, considering its own group and all its ancestors, versions 1 and 2. `groups`:
/// the mount point of the hierarchies (/sys/fs/cgroup); `own`: the process's list of its groups (/proc/self/cgroup).
int64_t control_group_available(const std::filesystem::path& groups, const std::filesystem::path& own);

}  // namespace tenon::cpu
