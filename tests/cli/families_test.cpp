// Verbs ask models for abilities: a family that the program does not know draws through `generate` like any other, and
// a model without the ability for a verb is refused by its family's name.
#include <signal.h>

#include <fstream>

#include "tenon/io/image.h"
#include "tests/cli/cli.h"

namespace cli {
namespace {
using nlohmann::json;

class CliFamilies : public CliTest {
 protected:
  static inline const std::vector<std::string> kToy = with_new_files({"flat"});
};

TEST_F(CliFamilies, OneFileDraws) {
  const Finished f = tenon(
      {"generate", "abc", "-m", "random:flat", "-H", "24", "--steps", "3", "--batch-size", "2", "-s", "40", "--json"},
      kToy);
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.err.find("step 3/3"), std::string::npos) << f.err;
  EXPECT_EQ(json::parse(f.out.substr(0, f.out.find('\n')))["steps"], 3);
  for (const int i : {0, 1}) {
    const auto file = folder() / ("output_" + std::to_string(i) + ".png");
    const tenon::Image image = tenon::read_png(file);
    EXPECT_EQ(image.width, 16);
    EXPECT_EQ(image.height, 24);
    EXPECT_EQ(image.pixels, std::vector<uint8_t>(16 * 24 * 3, static_cast<uint8_t>(43 + i)));
    const std::string about = tenon::read_png_text(file).at("parameters");
    EXPECT_NE(about.find("Seed: " + std::to_string(40 + i)), std::string::npos) << about;
  }
}

TEST_F(CliFamilies, OneFileReadsItsOwnFiles) {
  std::ofstream(folder() / "grey.flat") << "grey";
  const Finished f = tenon({"generate", "abc", "-m", "grey.flat"}, kToy);
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_NE(tenon::read_png_text(folder() / "output.png").at("parameters").find("Model: grey.flat"), std::string::npos);
  EXPECT_NE(tenon({"generate", "abc", "-m", "grey.flat"}).code, 0);  // without it no family can
}

TEST_F(CliFamilies, OneFileIsStopped) {
  Process p({"generate", "abc", "-m", "random:flat", "--steps", "1000"}, folder(), kToy);
  ASSERT_TRUE(p.wait_for_log("step 2/", 60));
  p.signal(SIGINT);
  EXPECT_EQ(p.finish().code, 130);
  EXPECT_TRUE(files().empty());
}

TEST_F(CliFamilies, WhatAModelCannotDoIsRefusedByItsFamily) {
  tenon::write_png(folder() / "a.png", {8, 8, 3, std::vector<uint8_t>(8 * 8 * 3)});
  expect_error(3, {"generate", "a circle", "-m", "random:vit-s14"},
               {"random:vit-s14", "'image encoder'", "cannot draw pictures", "make features of pictures (embed)"});
  expect_error(3, {"embed", "a.png", "-m", "random:sd15"},
               {"random:sd15", "'stable diffusion'", "cannot make features of pictures", "draw pictures (generate)"});
  expect_error(3, {"embed", "a.png", "-m", model()}, {"tiny", "'stable diffusion'", "draw pictures", "image encoder"});
  // For a path that no family recognises, the families with the ability report the error.
  std::ofstream(folder() / "broken.safetensors") << "broken";
  expect_error(3, {"embed", "a.png", "-m", "broken.safetensors"}, {"broken.safetensors", "8 bytes"});
  expect_error(3, {"generate", "a circle", "-m", "broken.safetensors"}, {"broken.safetensors", "8 bytes"});
  for (const std::vector<std::string>& wanted : {std::vector<std::string>{"embed", "a.png"}, {"explain"}, {"bench"}}) {
    std::vector<std::string> arguments = wanted;
    arguments.insert(arguments.end(), {"-m", "random:flat"});
    const Finished f = tenon(arguments, kToy);
    EXPECT_EQ(f.code, 3) << f.err;
    EXPECT_NE(f.err.find("'flat colour'"), std::string::npos) << f.err;
    EXPECT_NE(f.err.find("draw pictures (generate)"), std::string::npos) << f.err;
  }
}

}  // namespace
}  // namespace cli
