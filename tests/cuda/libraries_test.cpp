// Where NVIDIA's libraries are searched for, and messages about missing ones.
#include "tenon/backend/cuda/driver/libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tenon/backend/cuda/driver/embedded_texts.h"

namespace tenon::cuda {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

class Libraries : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("tenon_libraries_" + std::to_string(getpid()));
    settings_.own_environment = root_ / "cache/cuda-env";
    settings_.toolkits = root_ / "usr";
    settings_.system_loader = false;
  }
  void TearDown() override { fs::remove_all(root_); }
  // Makes a folder and returns its path.
  fs::path folder(const std::string& path) {
    fs::create_directories(root_ / path);
    return root_ / path;
  }
  void garbage(const fs::path& file) { std::ofstream(file) << "not a library"; }

  fs::path root_;
  SearchSettings settings_;
};

TEST_F(Libraries, BothLayoutsOfWheelsInEveryKindOfEnvironment) {
  const std::vector<fs::path> wheels = {
      folder("venv/lib/python3.11/site-packages/nvidia/cu13/lib"),
      folder("conda/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib"),
      folder("conda/lib"),
      folder("python/lib/python3/dist-packages/nvidia/cudnn/lib"),
      folder("home/.local/lib/python3.10/site-packages/nvidia/cublas/lib"),
      folder("cache/cuda-env/lib/python3.11/site-packages/nvidia/cu13/lib"),
  };
  garbage(folder("python/bin") / "python3");
  settings_.virtual_env = root_ / "venv";
  settings_.conda_prefix = root_ / "conda";
  settings_.path = (root_ / "nowhere").string() + ":" + (root_ / "python/bin").string();
  settings_.home = root_ / "home";
  EXPECT_EQ(library_folders(settings_), wheels);
}

TEST_F(Libraries, TheOrderOfPlaces) {
  const fs::path own = folder("own/lib64"), home = folder("home13/lib64"), current = folder("usr/cuda/lib64");
  const fs::path older = folder("usr/cuda-12.9/targets/x86_64-linux/lib"), newer = folder("usr/cuda-13.0/lib64");
  const fs::path wheel = folder("venv/lib/python3.11/site-packages/nvidia/cu13/lib");
  settings_.cuda_path = (root_ / "own").string();
  settings_.cuda_home = root_ / "home13";
  settings_.virtual_env = root_ / "venv";
  const std::vector<fs::path> expected = {root_ / "own", own, home, current, newer, older, wheel};
  EXPECT_EQ(library_folders(settings_), expected);
}

TEST_F(Libraries, TheVariableNamesALibraryFolderAToolkitOrAnEnvironment) {
  const fs::path plain = folder("plain"), site = folder("site"), wheel = folder("site/nvidia/cu13/lib");
  const fs::path packages = folder("venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib");
  settings_.cuda_path = plain.string() + ":" + site.string() + ":" + (root_ / "venv").string();
  const std::vector<fs::path> expected = {plain, site, wheel, root_ / "venv", root_ / "venv/lib", packages};
  EXPECT_EQ(library_folders(settings_), expected);
}

TEST_F(Libraries, PyenvsVersions) {
  garbage(folder("pyenv/shims") / "python3");
  const fs::path wheel = folder("pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/cu13/lib");
  settings_.path = root_ / "pyenv/shims";
  EXPECT_EQ(library_folders(settings_), std::vector<fs::path>{wheel});
}

TEST_F(Libraries, MissingOnesComeWithACommand) {
  for (const LibraryReport& report : report_libraries(settings_)) {
    EXPECT_FALSE(report.found) << report.name;
    EXPECT_EQ(report.problem, "") << report.name;
    EXPECT_THAT(report.hint, HasSubstr("install")) << report.name;
  }
  EXPECT_THAT(install_command(Library::Nvrtc, settings_), HasSubstr("cuda-env/bin/pip' install nvidia-cuda-nvrtc"));
  settings_.own_environment.clear();  // without a home folder
  EXPECT_THAT(install_command(Library::Nvrtc, settings_),
              testing::StartsWith("python3 -m pip install nvidia-cuda-nvrtc"));
}

TEST_F(Libraries, AFileThatIsNoLibraryIsNamed) {
  settings_.cuda_path = folder("broken");
  garbage(root_ / "broken/libnvrtc.so.13");
  const SearchResult result = load_library(Library::Nvrtc, settings_);
  EXPECT_FALSE(result.library);
  EXPECT_THAT(result.problem, HasSubstr("broken/libnvrtc.so.13"));
}

TEST_F(Libraries, VersionsNewerThanTheDriverAreLeftOut) {
  settings_.cuda_path = folder("broken");
  garbage(root_ / "broken/libnvrtc.so.13");
  EXPECT_THAT(load_library(Library::Nvrtc, settings_, 12).problem, HasSubstr("newer than the driver"));
}

TEST(EmbeddedHeaders, AreTheFilesTexts) {
  bool found = false;
  for (const EmbeddedText& header : embedded_headers()) {
    const std::string name = header.name;
    EXPECT_TRUE(name.starts_with("tenon/")) << name;
    EXPECT_FALSE(name.ends_with("_host.h")) << name;
    found = true;
    std::ifstream file(TENON_SOURCE_DIR "/" + name, std::ios::binary);
    EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(file), {}) == header.text) << name;
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace tenon::cuda
