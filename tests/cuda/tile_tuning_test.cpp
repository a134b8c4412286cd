// What is measured: not while one of our cores is selected, and not what this machine's table has and can still run.
#include "tenon/backend/cuda/products/tile_tuning.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/cuda/emulator.h"

namespace tenon::tuning_test {
namespace {
namespace fs = std::filesystem;
using cuda::ProductShape;
using cuda::TileChoice;

// A device of another name for every table, since a process reads each only once.
class Named : public cuda::test::Emulator {
 public:
  explicit Named(std::string name) : facts_(Emulator::facts()) { facts_.name = std::move(name); }
  const cuda::DeviceFacts& facts() const override { return facts_; }

 private:
  cuda::DeviceFacts facts_;
};

class Tuning : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("tenon_tuning_" + std::to_string(getpid()));
    fs::create_directories(root_ / "tiles");
    setenv("TENON_CACHE_DIR", root_.c_str(), 1);
    unsetenv("TENON_CUDA_CORE");
  }
  void TearDown() override {
    for (const char* variable : {"TENON_CACHE_DIR", "TENON_CUDA_CORE", "TENON_CUDA_TUNE"}) unsetenv(variable);
    fs::remove_all(root_);
  }
  // Whether the product is measured on a device whose table has this line for it.
  bool measures(const std::string& choice) const {
    static int count = 0;
    const std::string name = "tuned-" + std::to_string(getpid()) + "-" + std::to_string(++count);
    if (!choice.empty()) std::ofstream(root_ / "tiles" / ("sm_90a-" + name + ".txt")) << p_.key << " = " << choice;
    Named device(name);
    struct Measures {};
    try {
      tune_tiles(device, p_, {}, [](const TileChoice&) -> cuda::TunedCall { throw Measures(); });
    } catch (const Measures&) {
      return true;
    }
    return false;
  }

  fs::path root_;
  ProductShape p_ = {.m = 8192,
                     .n = 320,
                     .k = 320,
                     .boxed_tiles_m = [](int rows) { return cuda::div_up(8192, rows); },
                     .key = "gemm of a test"};
};

TEST_F(Tuning, WhatCanNoLongerRunIsMeasuredAgain) {
  EXPECT_TRUE(measures(""));
  EXPECT_FALSE(measures("mma 128x128 warps 2x4 bytes 64 stages 4 splits 1"));
  for (const char* choice : {"gone 64x64", "mma 128x128", "wgmma 512x512 stages 9 resident 1 cluster 1 splits 1"})
    EXPECT_TRUE(measures(choice)) << choice;
}

// Its tiles are not the best of all, which the table's lines are.
TEST_F(Tuning, NothingIsMeasuredWhileOneOfOurCoresIsSelected) {
  const Named device("any");
  EXPECT_FALSE(tuning(device)) << "not asked for";
  setenv("TENON_CUDA_TUNE", "1", 1);
  EXPECT_TRUE(tuning(device));
  for (const char* core : {"mma", "simt", "skinny", "wgmma"}) {
    setenv("TENON_CUDA_CORE", core, 1);
    EXPECT_FALSE(tuning(device)) << core;
  }
  for (const char* core : {"own", "cublaslt", "cudnn"}) {
    setenv("TENON_CUDA_CORE", core, 1);
    EXPECT_TRUE(tuning(device)) << core;
  }
}

}  // namespace
}  // namespace tenon::tuning_test
