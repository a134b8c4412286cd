// The fixtures themselves: the hash against its published values, the parity files, the checkpoint writers.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/fixtures/checkpoint.h"
#include "tests/fixtures/hashing.h"
#include "tests/fixtures/parity.h"

namespace {

TEST(Fixtures, HashAgreesWithItsPublishedValues) {
  const double want[] = {0.15846673, 0.49619982, -0.20931299, 0.45122116};
  for (uint32_t i = 0; i < 4; ++i) EXPECT_LE(std::abs(fixtures::u(1, i) - want[i]), 5e-9);
}

TEST(Fixtures, EveryExpectedTensorIsThere) {
  const fixtures::Parity parity;
  size_t tensors = 0;
  for (const auto& c : parity.cases())
    for (const auto& [name, about] : c.at("expect").items()) {
      const fixtures::Expected e = parity.expected(c, name);
      EXPECT_EQ(e.values.size(), (e.numel() + e.stride - 1) / e.stride) << c.at("name") << " " << name;
      std::vector<float> same(e.numel());
      for (size_t i = 0; i < e.values.size(); ++i) same[i * e.stride] = e.values[i];
      EXPECT_TRUE(e.agrees_with(same, 0));
      same[0] = std::nanf("");
      EXPECT_FALSE(e.agrees_with(same, 1)) << "NaN must fail";
      ++tensors;
    }
  EXPECT_GT(tensors, 150u);
}

TEST(Fixtures, LayoutHasThePublishedCounts) {
  std::map<std::string, int64_t> tensors, parameters;
  for (const fixtures::LayoutTensor& t : fixtures::sd15_layout()) {
    int64_t n = 1;
    for (const int64_t d : t.full) n *= d;
    ++tensors[t.component];
    parameters[t.component] += n;
  }
  EXPECT_EQ(tensors["unet"], 686);
  EXPECT_EQ(parameters["unet"], 859520964);
  EXPECT_EQ(tensors["text"], 196);
  EXPECT_EQ(parameters["text"], 123060480);
  EXPECT_EQ(tensors["vae"], 248);
  EXPECT_EQ(parameters["vae"], 83653863);
}

TEST(Fixtures, WritersProduceFiles) {
  const auto root = std::filesystem::path(testing::TempDir()) / "tenon-fixtures-checkpoints";
  fixtures::write_diffusers_folder(root / "f16-old", tenon::DType::F16, true);
  fixtures::write_single_file(root / "ldm.safetensors", tenon::DType::F32);
  EXPECT_TRUE(std::filesystem::exists(root / "f16-old" / "tokenizer" / "vocab.json"));
  EXPECT_GT(std::filesystem::file_size(root / "ldm.safetensors"), 30u << 20);
  std::filesystem::remove_all(root);
}

}  // namespace
