#include "tenon/backend/cpu/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "tenon/backend/cpu/tile/tile_ops.h"
#include "tenon/core/error.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kPage = 4096, kHugePage = 2 << 20;

// The number in a file of one number; `none` if the file is missing or says "max".
int64_t number_in(const char* path, int64_t none) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : none;
}

int64_t mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return std::numeric_limits<int64_t>::max();
}

int64_t group_available(const char* limit, const char* used) {
  constexpr int64_t none = std::numeric_limits<int64_t>::max();
  const int64_t most = number_in(limit, none);
  return most == none ? none : std::max<int64_t>(most - number_in(used, 0), 0);
}

}  // namespace

std::shared_ptr<void> allocate_host(int64_t bytes) {
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kPage);
  // A huge page more, so that the block can start on one; what is before and behind goes back.
  const int64_t slack = size >= kHugePage ? kHugePage : 0;
  void* map =
      mmap(nullptr, static_cast<size_t>(size + slack), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    throw Error(ErrorKind::Memory, "memory", "the system refused " + std::to_string(bytes) + " bytes");
  }
  std::byte* begin = static_cast<std::byte*>(map);
  if (slack) {
    std::byte* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<int64_t>(begin), kHugePage));
    if (aligned > begin) munmap(begin, static_cast<size_t>(aligned - begin));
    if (begin + slack > aligned) munmap(aligned + size, static_cast<size_t>(begin + slack - aligned));
    begin = aligned;
    madvise(begin, static_cast<size_t>(size), MADV_HUGEPAGE);  // a wish: failing is harmless
  }
  return std::shared_ptr<void>(begin, [size](void* p) { munmap(p, static_cast<size_t>(size)); });
}

int64_t host_memory_available() {
  return std::min(
      {mem_available(), group_available("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
       group_available("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes")});
}

}  // namespace tenon::cpu
