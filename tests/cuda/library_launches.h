// Shared by tests of launches by a vendor's library: the fake library, devices that have it or the real one, and a
// cache folder whose table of choices a test may write.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tenon/backend/cuda/driver/driver_device.h"
#include "tenon/backend/cuda/driver/libraries.h"
#include "tenon/core/error.h"
#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/emulator.h"

namespace tenon::launches {

/// Searches for libraries only in `folder`.
inline cuda::SearchSettings only(const std::string& folder) {
  cuda::SearchSettings settings;
  settings.cuda_path = folder;
  settings.system_loader = false;
  settings.toolkits = "/nonexistent";
  return settings;
}

/// False if tests should run only on a GPU.
inline bool emulated() { return !std::getenv("TENON_TEST_GPU_ONLY"); }

/// The emulator, with a new name each time: a process reads the table of a name only once.
class NamedEmulator : public cuda::test::Emulator {
 public:
  explicit NamedEmulator(const std::string& arch) : Emulator({.arch = arch}), facts_(Emulator::facts()) {
    static int count = 0;
    facts_.name = numbered("emulator", getpid()) + numbered("-", ++count);
  }
  const cuda::DeviceFacts& facts() const override { return facts_; }

 private:
  cuda::DeviceFacts facts_;
};

/// Launches go to the library if it supports them. Has its own cache folder.
class LibraryLaunchTest : public LaunchTest {
 protected:
  /// `library`: its name in TENON_CUDA_CORE and in names of calls.
  explicit LibraryLaunchTest(std::string library) : library_(std::move(library)) {}

  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / numbered("tenon_" + library_ + "_", getpid());
    std::filesystem::remove_all(root_);
    setenv("TENON_CACHE_DIR", root_.c_str(), 1);
    setenv("TENON_CUDA_CORE", library_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TENON_CACHE_DIR");
    unsetenv("TENON_CUDA_CORE");
    std::filesystem::remove_all(root_);
  }

  /// The emulator with the fake library.
  virtual std::shared_ptr<cuda::Device> with_library() const = 0;
  /// Whether a GPU has the library.
  virtual bool has_library(cuda::Device& gpu) const = 0;
  /// Runs the launch on all devices with the library, or with our kernels if not `native`, and compares.
  void expect_on_library(const Launch& l, const Rounding& tolerance, bool native = true) {
    Oracle oracle(tensors);
    std::vector<std::vector<double>> want;
    for (const Output& o : l.outputs) want.push_back(oracle.eval(o.value));
    for (const auto& device : devices()) {
      const Tensors got = run_on(device, l, tensors, &calls_);
      EXPECT_EQ(calls_.find(" " + library_ + " ") != std::string::npos, native) << calls_;
      for (size_t i = 0; i < want.size(); ++i)
        compare(l.outputs[i], got.at(l.outputs[i].buffer), want[i], tolerance, device->facts().name);
    }
  }

  std::filesystem::path table_of(const cuda::Device& device) const {
    return root_ / "tiles" / (device.facts().arch + "-" + device.facts().name + ".txt");
  }
  void write_table(const cuda::Device& device, const std::string& line) const {
    std::filesystem::create_directories(root_ / "tiles");
    std::ofstream(table_of(device)) << line << '\n';
  }
  std::string table_text(const cuda::Device& device) const {
    std::ostringstream text;
    text << std::ifstream(table_of(device)).rdbuf();
    return text.str();
  }

  std::filesystem::path root_;
  std::string calls_;  ///< of the last launch

 private:
  std::vector<std::shared_ptr<cuda::Device>> devices() const {
    std::vector<std::shared_ptr<cuda::Device>> out;
    if (emulated()) out.push_back(with_library());
    try {
      const auto gpu = std::make_shared<cuda::DriverDevice>();
      if (has_library(*gpu)) out.push_back(gpu);
    } catch (const Error&) {  // no GPU here
    }
    return out;
  }

  std::string library_;
};

}  // namespace tenon::launches
