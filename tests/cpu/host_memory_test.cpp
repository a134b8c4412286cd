// Memory left by control groups, over trees of files as the kernel presents them.
#include "tenon/backend/cpu/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "tests/support/sanitized.h"

namespace {
namespace fs = std::filesystem;
using namespace tenon::cpu;

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

class ControlGroups : public testing::Test {
 protected:
  ControlGroups() {
    std::string name = (fs::temp_directory_path() / "tenon-groups-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~ControlGroups() override { fs::remove_all(root_); }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void group(const std::string& path, const std::string& most, int64_t used, int64_t idle = 0) const {
    put(path + "/memory.max", most + "\n");
    put(path + "/memory.current", std::to_string(used) + "\n");
    put(path + "/memory.stat", "anon 5\ninactive_file " + std::to_string(idle) + "\nactive_file 7\n");
  }
  void group1(const std::string& path, const std::string& most, int64_t used, int64_t idle = 0) const {
    put("memory" + path + "/memory.limit_in_bytes", most + "\n");
    put("memory" + path + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    put("memory" + path + "/memory.stat", "inactive_file 3\ntotal_inactive_file " + std::to_string(idle) + "\n");
  }
  int64_t available(const std::string& own) const {
    put("own", own);
    return control_group_available(root_, root_ / "own");
  }

 private:
  fs::path root_;
};

// Memory of another plan that was not written to yet must not count as available.
TEST(HostMemory, WhatIsPromisedIsNotAvailable) {
  constexpr int64_t kSize = int64_t{1} << 30, kNear = kSize / 2;
  const int64_t before = host_memory_promised();
  std::shared_ptr<void> memory = allocate_host(kSize);
  EXPECT_GE(host_memory_promised(), before + kNear);
  std::memset(memory.get(), 1, kSize / 2 + kSize / 4);
  EXPECT_LE(host_memory_promised(), before + kNear);
  memory.reset();
  EXPECT_LE(host_memory_promised(), before + kNear / 4);
}

// What other code of the process has in use is no sign that promised memory was written.
TEST(HostMemory, TheHeapHidesNoPromises) {
  if (tenon::sanitized()) GTEST_SKIP() << "a sanitizer's malloc tells nothing of its memory";
  constexpr size_t kSize = size_t{1} << 28;
  const std::shared_ptr<void> memory = allocate_host(kSize);
  const std::vector<char> others(kSize, 'x');
  EXPECT_GE(host_memory_promised(), static_cast<int64_t>(kSize * 3 / 4));
  EXPECT_EQ(others.back(), 'x');
}

// Small blocks are adjacent, to share huge pages; each is zeroed, page-aligned, and returns its memory.
TEST(HostMemory, BlocksShareChunks) {
  // More in total than the process's other memory, which hides promises: a sanitizer's takes a hundred MiB.
  constexpr int64_t kSize = int64_t{3} << 19, kCount = 400, kPage = 4096;  // 1.5 MiB
  HostBlocks blocks;
  const int64_t before = host_memory_promised();
  std::vector<std::shared_ptr<void>> held;
  int neighbours = 0;
  for (int i = 0; i < kCount; ++i) {
    held.push_back(blocks.allocate(kSize - i));
    auto* const begin = static_cast<std::byte*>(held.back().get());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % kPage, 0u);
    EXPECT_EQ(begin[0], std::byte{0});
    EXPECT_EQ(begin[kSize - i - 1], std::byte{0});
    if (i > 0) neighbours += begin == static_cast<std::byte*>(held[held.size() - 2].get()) + kSize;
  }
  EXPECT_GE(neighbours, kCount * 9 / 10);
  EXPECT_GE(host_memory_promised(), before + kCount / 4 * kSize);
  for (const auto& block : held) std::memset(block.get(), 1, kSize);
  EXPECT_LE(host_memory_promised(), before + 10 * kSize);
  const std::shared_ptr<void> last = held.back();
  held.clear();
  EXPECT_LE(host_memory_promised(), before + 10 * kSize);
  EXPECT_EQ(static_cast<std::byte*>(last.get())[7], std::byte{1});
  held.push_back(blocks.allocate(int64_t{20} << 20));  // too large to share a chunk
  EXPECT_EQ(static_cast<std::byte*>(held[0].get())[0], std::byte{0});
}

TEST_F(ControlGroups, NoneMeansNoLimit) {
  EXPECT_EQ(available(""), kNone);
  EXPECT_EQ(available("0::/\n"), kNone);
  EXPECT_EQ(available("0::/a/b\n"), kNone);
  EXPECT_EQ(available("nonsense\n::\n4:memory\n"), kNone);
}

TEST_F(ControlGroups, TheOwnGroupCounts) {
  group("user.slice/app.scope", "1000", 300);
  EXPECT_EQ(available("0::/user.slice/app.scope\n"), 700);
  EXPECT_EQ(available("0::/user.slice/other.scope\n"), kNone);
}

TEST_F(ControlGroups, TheLeastOfAllGroupsAround) {
  group("a", "5000", 100);
  group("a/b", "900", 800);
  group("a/b/c", "max", 10);
  EXPECT_EQ(available("0::/a/b/c\n"), 100);
  EXPECT_EQ(available("0::/a\n"), 4900);
}

TEST_F(ControlGroups, IdleCacheOfFilesIsLeft) {
  group("a", "1000", 900, 400);
  EXPECT_EQ(available("0::/a\n"), 500);
  group("a", "1000", 100, 2000);
  EXPECT_EQ(available("0::/a\n"), 1000);
  group("a", "1000", 1200);
  EXPECT_EQ(available("0::/a\n"), 0);
}

// A container sees its own group at the root of the hierarchy, whatever the group is called outside.
TEST_F(ControlGroups, TheRootOfAContainerCounts) {
  group(".", "2000", 500);
  EXPECT_EQ(available("0::/docker/abc\n"), 1500);
  EXPECT_EQ(available("0::/../outside\n"), 1500);
}

TEST_F(ControlGroups, VersionOne) {
  group1("", "9223372036854771712", 10);
  group1("/docker", "3000", 1000);
  group1("/docker/abc", "2000", 500, 100);
  EXPECT_EQ(available("9:name=systemd:/x\n4:cpu,memory:/docker/abc\n0::/\n"), 1600);
  EXPECT_EQ(available("4:memory:/docker\n"), 2000);
}

TEST_F(ControlGroups, BothVersionsAtOnce) {
  group1("/a", "3000", 0);
  group("unified/b", "2500", 0);
  EXPECT_EQ(available("4:memory:/a\n0::/b\n"), 2500);
}

TEST(HostMemory, IsThere) { EXPECT_GT(host_memory_available(), 0); }

}  // namespace
