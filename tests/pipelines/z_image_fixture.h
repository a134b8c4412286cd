// A test with the tiny Z-Image in a temporary folder.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "tenon/core/error.h"
#include "tenon/pipelines/families/z_image/generator.h"
#include "tests/fixtures/z_image_folder.h"

namespace tenon {

class ZImageFolder : public testing::Test {
 protected:
  ZImageFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tenon-z-image-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path = name;
    fixtures::write_z_image(path);
  }
  ~ZImageFolder() override { std::filesystem::remove_all(path); }

  std::unique_ptr<ZImageGenerator> open(DType type = DType::F32) const {
    PipelineOptions o;
    o.type = type;
    return std::make_unique<ZImageGenerator>(ZImageModel::open(path.string()), o);
  }
  void expect_refused(ErrorKind kind, const std::string& what) const {
    try {
      const auto model = ZImageModel::open(path.string());
      for (const char* part : {"transformer", "text_encoder", "vae"}) model->weights(part);
      ADD_FAILURE() << "opened; expected: " << what;
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
      EXPECT_THAT(e.what(), testing::HasSubstr(what));
    }
  }
  void edit(const std::string& name, const std::function<void(nlohmann::json&)>& change) const {
    nlohmann::json value = nlohmann::json::parse(std::ifstream(path / name));
    change(value);
    std::ofstream(path / name) << value.dump();
  }

  std::filesystem::path path;
};

}  // namespace tenon
