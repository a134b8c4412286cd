#include "tenon/backend/cpu/host_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <string>

#include "tenon/backend/cpu/tile/tile_ops.h"
#include "tenon/core/error.h"

namespace tenon::cpu {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kHostChunk = 32 << 20;
constexpr int64_t kPage = 4096, kHugePage = 2 << 20;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::atomic<int64_t> reserved = 0;  // by allocate_host

// The number in a file with a single number; `none` if the file is missing or says "max".
int64_t number_in(const fs::path& path, int64_t none) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : none;
}

// The number after a name, in a file with a name and a number per line; `none` if it is missing.
int64_t number_of(const char* name, const fs::path& path, int64_t none) {
  std::ifstream file(path);
  std::string key, rest;
  for (int64_t value = 0; file >> key >> value; std::getline(file, rest))
    if (key == name) return value;
  return none;
}

int64_t mem_available() {
  const int64_t kib = number_of("MemAvailable:", "/proc/meminfo", -1);
  return kib < 0 ? kNoLimit : kib * 1024;
}

// What one control group leaves to its members. File cache that was not used lately counts as used, but is reclaimed
// under memory pressure, so it is available too.
int64_t group_available(const fs::path& group, const char* limit, const char* used, const char* idle) {
  const int64_t most = number_in(group / limit, kNoLimit);
  if (most == kNoLimit) return kNoLimit;
  return std::clamp<int64_t>(most - number_in(group / used, 0) + number_of(idle, group / "memory.stat", 0), 0, most);
}

// The least that a group and its ancestors leave. `path` begins with '/', the root of the hierarchy; in a container,
// `root` may be its own group, with the ancestors invisible.
int64_t hierarchy_available(const fs::path& root, const fs::path& path, const char* limit, const char* used,
                            const char* idle) {
  int64_t least = group_available(root, limit, used, idle);
  fs::path group = root;
  for (const fs::path& part : path.relative_path()) {
    if (part == "..") break;  // outside what this process can see
    least = std::min(least, group_available(group /= part, limit, used, idle));
  }
  return least;
}

}  // namespace

int64_t control_group_available(const fs::path& groups, const fs::path& own) {
  int64_t least = kNoLimit;
  std::ifstream file(own);  // "0::/user.slice/x" (version 2), "9:memory:/x" (version 1)
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first, second - first) + ",";  // ":cpu,memory,"
    const fs::path path = line.substr(second + 1);
    if (controllers == ":,")
      for (const char* root : {".", "unified"})  // a machine may have both versions
        least =
            std::min(least, hierarchy_available(groups / root, path, "memory.max", "memory.current", "inactive_file"));
    if (controllers.find("memory,") != controllers.npos)
      least = std::min(least, hierarchy_available(groups / "memory", path, "memory.limit_in_bytes",
                                                  "memory.usage_in_bytes", "total_inactive_file"));
  }
  return least;
}

namespace {

// Memory from the system that does not count as promised; from 2 MiB on it starts on a huge page.
std::shared_ptr<void> map_host(int64_t size) {
  // Maps an extra huge page, so that the block can start on one; the excess before and after is unmapped.
  const int64_t slack = size >= kHugePage ? kHugePage : 0;
  void* map =
      mmap(nullptr, static_cast<size_t>(size + slack), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    throw Error(ErrorKind::Memory, "memory", "cannot allocate " + std::to_string(size) + " bytes");
  }
  std::byte* begin = static_cast<std::byte*>(map);
  if (slack) {
    std::byte* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<int64_t>(begin), kHugePage));
    if (aligned > begin) munmap(begin, static_cast<size_t>(aligned - begin));
    if (begin + slack > aligned) munmap(aligned + size, static_cast<size_t>(begin + slack - aligned));
    begin = aligned;
    madvise(begin, static_cast<size_t>(size), MADV_HUGEPAGE);  // only a hint: failure is harmless
  }
  return {begin, [size](void* p) { munmap(p, static_cast<size_t>(size)); }};
}

// Bytes that malloc has handed out: resident, but none of `reserved`. 0 if another allocator replaces the library's.
int64_t in_heap() {
#ifdef __GLIBC__
  const auto heap = mallinfo2();
  return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
#else
  return 0;
#endif
}

int64_t whole_pages(int64_t bytes) { return round_up(std::max<int64_t>(bytes, 1), kPage); }

}  // namespace

std::shared_ptr<void> allocate_host(int64_t bytes) {
  const int64_t size = whole_pages(bytes);
  std::shared_ptr<void> map = map_host(size);
  reserved += size;
  void* const begin = map.get();
  return {begin, [map = std::move(map), size](void*) { reserved -= size; }};
}

std::shared_ptr<void> HostBlocks::allocate(int64_t bytes) {
  const int64_t size = whole_pages(bytes);
  if (size >= kHostChunk / 4) return allocate_host(bytes);
  const std::lock_guard lock(mutex_);
  if (!chunk_ || used_ + size > kHostChunk) {
    chunk_ = map_host(kHostChunk);
    used_ = 0;
  }
  std::byte* const begin = static_cast<std::byte*>(chunk_.get()) + used_;
  used_ += size;
  reserved += size;
  return {begin, [chunk = chunk_, size](void* p) {  // the chunk may outlive this block: return its pages now
            madvise(p, static_cast<size_t>(size), MADV_DONTNEED);
            reserved -= size;
          }};
}

int64_t host_memory_promised() {
  std::ifstream file("/proc/self/statm");  // pages: all, resident, resident ones that belong to files, ..
  int64_t all = 0, resident = 0, of_files = 0;
  if (!(file >> all >> resident >> of_files)) return 0;
  const int64_t written = std::max<int64_t>((resident - of_files) * sysconf(_SC_PAGESIZE) - in_heap(), 0);
  return std::max<int64_t>(reserved - written, 0);
}

int64_t host_memory_available() {
  const int64_t free = std::min(mem_available(), control_group_available("/sys/fs/cgroup", "/proc/self/cgroup"));
  return free == kNoLimit ? free : std::max<int64_t>(free - host_memory_promised(), 0);
}

}  // namespace tenon::cpu
