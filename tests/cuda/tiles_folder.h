// An empty cache folder for tables of tiles, and the warnings that are logged meanwhile.
#pragma once
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace tenon::cuda {
namespace fs = std::filesystem;

class TilesFolder : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("tenon_tiles_" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    setenv("TENON_CACHE_DIR", root_.c_str(), 1);
    unsetenv("TENON_CUDA_CORE");
    before_ = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(warnings_)));
  }
  void TearDown() override {
    spdlog::set_default_logger(before_);
    unsetenv("TENON_CACHE_DIR");
    unsetenv("TENON_CUDA_CORE");
    fs::remove_all(root_);
  }
  int warning_count() const {
    const std::string all = warnings_.str();
    return static_cast<int>(std::count(all.begin(), all.end(), '\n'));
  }
  static void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  static std::string text_of(const fs::path& file) {
    std::ostringstream out;
    out << std::ifstream(file).rdbuf();
    return out.str();
  }

  fs::path root_;
  std::ostringstream warnings_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace tenon::cuda
