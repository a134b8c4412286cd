// Kernels on disk: what is found again, and handling of damaged files, crowded folders and invalid folders.
#include "tenon/backend/cuda/driver/kernel_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "tenon/backend/cuda/driver/included_headers.h"

namespace tenon::cuda {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

KernelBinary entry(char fill, size_t size = 5000) {
  return {std::vector<std::byte>(size, std::byte(fill)), std::string("log of ") + fill};
}
bool same(const std::optional<KernelBinary>& a, const KernelBinary& b) {
  return a && a->cubin == b.cubin && a->log == b.log;
}

// Its own folder, with all warnings in `warnings`.
class Cache : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("tenon_kernels_" + std::to_string(getpid()));
    fs::remove_all(root_);
    before_ = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(warnings_)));
  }
  void TearDown() override {
    spdlog::set_default_logger(before_);
    fs::remove_all(root_);
  }
  int warning_count() {
    int lines = 0;
    std::istringstream in(warnings_.str());
    for (std::string line; std::getline(in, line);) ++lines;
    return lines;
  }
  std::set<std::string> files() {
    std::set<std::string> names;
    for (const auto& file : fs::directory_iterator(root_)) names.insert(file.path().filename());
    return names;
  }

  fs::path root_;
  std::ostringstream warnings_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(Cache, WhatWasStoredIsFound) {
  const KernelCache cache(root_);
  EXPECT_FALSE(cache.find("aa"));
  cache.store("aa", entry('x'));
  cache.store("bb", entry('y', 0));
  EXPECT_TRUE(same(cache.find("aa"), entry('x')));
  EXPECT_TRUE(same(KernelCache(root_).find("bb"), entry('y', 0)));
  cache.store("aa", entry('x'));
  EXPECT_EQ(files(), (std::set<std::string>{"aa.kernel", "bb.kernel"}));
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(Cache, DamagedEntriesAreRemovedWithAWarning) {
  const KernelCache cache(root_);
  cache.store("aa", entry('x', 100));
  std::ifstream in(cache.file_of("aa"), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const auto damaged = [&](const std::string& bytes) {
    std::ofstream(cache.file_of("aa"), std::ios::binary) << bytes;
    const int before = warning_count();
    EXPECT_FALSE(cache.find("aa"));
    EXPECT_EQ(warning_count(), before + 1);
    EXPECT_FALSE(fs::exists(cache.file_of("aa")));
  };
  for (size_t size = 0; size < whole.size(); size += 9) damaged(whole.substr(0, size));
  for (size_t at = 0; at < whole.size(); at += 5) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    damaged(changed);
  }
  damaged(whole + "more");
  EXPECT_THAT(warnings_.str(), HasSubstr("aa.kernel is corrupt"));
  cache.store("aa", entry('x', 100));
  EXPECT_TRUE(same(cache.find("aa"), entry('x', 100)));
}

TEST_F(Cache, AFileTooLargeToBeOursIsNotRead) {
  const KernelCache cache(root_);
  cache.store("aa", entry('x'));
  fs::resize_file(cache.file_of("aa"), (uintmax_t{1} << 28) + 1);  // sparse
  EXPECT_FALSE(cache.find("aa"));
  EXPECT_TRUE(fs::exists(cache.file_of("aa")));
  EXPECT_EQ(warnings_.str(), "");
  cache.store("aa", entry('x'));
  EXPECT_TRUE(same(cache.find("aa"), entry('x')));
}

TEST_F(Cache, AnEntryUnderAnotherKeyIsDamaged) {
  const KernelCache cache(root_);
  cache.store("aa", entry('x'));
  fs::rename(cache.file_of("aa"), cache.file_of("bb"));
  EXPECT_FALSE(cache.find("bb"));
}

TEST_F(Cache, AFolderThatCannotBeWrittenIsOneWarning) {
  std::ofstream(root_) << "a file, not a folder";
  const KernelCache cache(root_ / "kernels");
  for (int i = 0; i < 3; ++i) cache.store("aa", entry('x'));
  EXPECT_FALSE(cache.find("aa"));
  EXPECT_EQ(warning_count(), 1);
  EXPECT_THAT(warnings_.str(), HasSubstr("compiled kernels are not saved"));
}

TEST_F(Cache, ProcessesAndThreadsAtOnce) {
  constexpr int kKeys = 4, kRounds = 20;
  const auto work = [this] {
    const KernelCache cache(root_);
    bool good = true;
    for (int round = 0; round < kRounds; ++round)
      for (int k = 0; k < kKeys; ++k) {
        const std::string key = "key" + std::to_string(k);
        const auto found = cache.find(key);
        good &= !found || same(found, entry(static_cast<char>('a' + k)));
        cache.store(key, entry(static_cast<char>('a' + k)));
      }
    return good;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(work() ? 0 : 1);
    children.push_back(child);
  }
  std::thread beside([&] { EXPECT_TRUE(work()); });
  EXPECT_TRUE(work());
  beside.join();
  for (pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(files().size(), size_t{kKeys});
  EXPECT_EQ(warnings_.str(), "");
}

TEST(KernelKey, DependsOnAllThatGoesIn) {
  const KernelSource source{"a", "text"};
  const std::string key = kernel_key(source, "sm_89", {13, 0});
  EXPECT_EQ(key.size(), 64U);
  EXPECT_EQ(key, kernel_key({"another name", "text"}, "sm_89", {13, 0}));
  EXPECT_NE(key, kernel_key({"a", "text "}, "sm_89", {13, 0}));
  EXPECT_NE(key, kernel_key(source, "sm_90a", {13, 0}));
  EXPECT_NE(key, kernel_key(source, "sm_89", {13, 1}));
}

// All that is reached, in whatever form; not the compiler's own headers, nor ours that nothing reaches.
TEST(KernelKey, HeadersAreFoundThroughOthers) {
  const std::map<std::string, std::string> headers = {{"a.h", "#include \"b.h\"\n#include <cmath>\n"},
                                                      {"b.h", "#ifdef X\n#include \"c.h\"\n#endif\n#include \"a.h\""},
                                                      {"c.h", ""},
                                                      {"d.h", "#include \"a.h\"\n"}};
  std::map<std::string, std::vector<std::string>> read;
  for (const auto& [name, text] : headers) read[name] = included_names(text);
  EXPECT_EQ(read["a.h"], std::vector<std::string>{"b.h"});
  const auto known = [&](const std::string& name) { return read.contains(name) ? &read[name] : nullptr; };
  EXPECT_EQ(all_included("x\n#include \"a.h\"\n#include \"none.h\"\n", known),
            (std::set<std::string>{"a.h", "b.h", "c.h"}));
  EXPECT_EQ(all_included("#include \"c.h\"", known), std::set<std::string>{"c.h"});
  EXPECT_EQ(all_included("int a;", known), std::set<std::string>{});
}

}  // namespace
}  // namespace tenon::cuda
