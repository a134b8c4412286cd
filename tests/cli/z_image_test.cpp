// Z-Image through the command line: a picture from a folder, and errors about wrong folders and flags.
#include <fstream>

#include "tenon/io/image.h"
#include "tests/cli/cli.h"
#include "tests/fixtures/z_image_folder.h"

namespace cli {
namespace {

class CliZImage : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    fixtures::write_z_image(folder() / "tiny");
  }
  std::vector<std::string> draw(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"generate", "-m", "tiny", "-W", "48", "-H", "32", "-s", "7"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(CliZImage, DrawsInEightStepsUnguided) {
  const Finished f = tenon(draw({"a red circle", "--json"}));
  ASSERT_EQ(f.code, 0) << f.err;
  const auto j = nlohmann::json::parse(f.out);
  EXPECT_EQ(j.at("steps"), 8);
  EXPECT_EQ(j.at("cfg_scale"), 1.0);
  EXPECT_EQ(j.at("sampler"), "euler");
  EXPECT_EQ(j.at("timesteps").size(), 8U);
  const tenon::Image image = tenon::read_png(folder() / "output.png");
  EXPECT_EQ(image.width, 48);
  EXPECT_EQ(image.height, 32);
  EXPECT_NE(f.err.find("step 8/8"), std::string::npos) << f.err;
}

TEST_F(CliZImage, EmptyAndLongPrompts) {
  const Finished empty = tenon(draw({"-p", "", "--steps", "1", "-o", "empty.png"}));
  EXPECT_EQ(empty.code, 0) << empty.err;
  std::string words;
  for (int i = 0; i < 200; ++i) words += "seven hundred words of green ";
  const Finished f = tenon(draw({"-p", words, "-n", "blue", "--cfg-scale", "3", "--steps", "1"}));
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.err.find("reads the first 512"), std::string::npos) << f.err;
}

// diffusers counts this model's guidance from 0.
TEST_F(CliZImage, GuidanceInBothCounts) {
  const auto hash = [&](const std::string& flag, const std::string& value) {
    const Finished f = tenon(draw({"a", "--steps", "1", "--json", "--overwrite", flag, value}));
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_NE(f.err.find("guidance 3 (--guidance-scale 2)"), std::string::npos) << f.err;
    return f.code ? "" : nlohmann::json::parse(f.out).at("pixels_sha256").get<std::string>();
  };
  EXPECT_EQ(hash("--cfg-scale", "3"), hash("--guidance-scale", "2"));
  expect_error(2, draw({"a", "--cfg-scale", "3", "--guidance-scale", "2"}), {"--cfg-scale", "--guidance-scale"});
}

TEST_F(CliZImage, WrongFlags) {
  expect_error(2, {"generate", "a", "-m", "tiny", "-W", "40"}, {"width", "40 is not a multiple of 16", "48"});
  expect_error(2, draw({"a", "--sampler", "ddim"}), {"ddim", "flow matching"});
  expect_error(2, draw({"a", "-i", "tiny/none.png"}), {"none.png"});
  expect_error(2, draw({"-p", "a", "-p", "b", "--batch-size", "2"}), {"--batch-size", "several prompts"});
  EXPECT_EQ(tenon(draw({"-p", "a", "-p", "b", "--batch-size", "1", "-o", "both_%d.png"})).code, 0);
  expect_error(2, draw({"a", "-p", "b"}), {"prompt", "more than one way"});
  expect_error(2, draw({"a", "--flow-shift", "0"}), {"flow shift", "0.001..1000"});
  expect_error(2, {"generate", "a", "--flow-shift", "3"}, {"flow shift", "flow-matching models only"});
  expect_error(2, {"generate", "a", "--vae", "tiny/vae"}, {"--vae", "Z-Image"});
  expect_error(2, {"generate", "-p", "a", "-p", "b"}, {"prompts", "one prompt"});
  expect_error(3, draw({"a", "--llm", "tiny/tokenizer"}), {"tiny/tokenizer", "config.json"});
  expect_error(2, {"explain", "-m", "random:sd15", "--type", "e4m3"}, {"e4m3", "unet"});
}

TEST_F(CliZImage, SeveralPromptsAndAPicture) {
  const Finished several = tenon(draw({"-p", "[a, b]", "-p", "", "--steps", "1", "--json", "-o", "of_%d.png"}));
  ASSERT_EQ(several.code, 0) << several.err;
  std::istringstream lines(several.out);
  std::vector<nlohmann::json> found;
  for (std::string line; std::getline(lines, line);) found.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].at("prompt"), "[a, b]");
  EXPECT_EQ(found[1].at("prompt"), "");
  EXPECT_EQ(found[1].at("seed"), 8);
  const Finished again = tenon({"generate", "-m", "tiny", "-p", "a", "--steps", "8", "--strength", "0.6", "--sampler",
                                "DPM++ 2M", "--json", "-i", "of_0.png"});
  ASSERT_EQ(again.code, 0) << again.err;
  const auto j = nlohmann::json::parse(again.out);
  EXPECT_EQ(j.at("width"), 48);
  EXPECT_EQ(j.at("height"), 32);
  EXPECT_EQ(j.at("timesteps").size(), 5U);
  EXPECT_EQ(j.at("sampler"), "dpm++2m");
}

TEST_F(CliZImage, PartsOfTheirOwn) {
  const auto hash = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"generate", "a", "-W", "32", "-H", "32", "--steps", "1", "--json", "--overwrite"};
    all.insert(all.end(), more.begin(), more.end());
    const Finished f = tenon(all);
    EXPECT_EQ(f.code, 0) << f.err;
    return f.code ? "" : nlohmann::json::parse(f.out).at("pixels_sha256").get<std::string>();
  };
  EXPECT_EQ(hash({"-m", "tiny"}), hash({"--diffusion-model", "tiny/transformer", "--llm", "tiny/text_encoder", "--vae",
                                        "tiny/vae/diffusion_pytorch_model.safetensors"}));
  const Finished f = tenon({"generate", "a", "-m", "tiny/transformer", "--overwrite"});
  EXPECT_EQ(f.code, 3);
  EXPECT_NE(f.err.find("--llm"), std::string::npos) << f.err;
}

// Not the embedded model's parts, to which the given ones do not belong.
TEST_F(CliZImage, TrainsPartsOfTheirOwn) {
  const std::vector<std::string> parts{"--diffusion-model",
                                       "tiny/transformer",
                                       "--llm",
                                       "tiny/text_encoder",
                                       "--vae",
                                       "tiny/vae/diffusion_pytorch_model.safetensors"};
  const auto train = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"train", "lora", "--steps", "1", "--sample-every", "0", "-o", "lora_of_parts"};
    all.insert(all.end(), parts.begin(), parts.end());
    all.insert(all.end(), more.begin(), more.end());
    return tenon(all);
  };
  EXPECT_NE(train({}).err.find("--instance-data-dir"), std::string::npos);
  fs::create_directory(folder() / "own");
  ASSERT_EQ(tenon({"generate", "a", "-m", "tiny", "-W", "32", "-H", "32", "--steps", "1", "-o", "own/a.png"}).code, 0);
  const Finished f = train({"--instance-data-dir", "own", "--caption", "a", "--resolution", "32"});
  EXPECT_EQ(f.code, 0) << f.err;
}

// Its head norms would be ignored by another family.
TEST_F(CliZImage, ATextEncoderOfAnotherFamily) {
  const auto file = folder() / "tiny/text_encoder/config.json";
  nlohmann::json config = nlohmann::json::parse(std::ifstream(file));
  config["model_type"] = "llama";
  std::ofstream(file) << config;
  expect_error(3, draw({"a"}), {"text_encoder", "'llama'", "expected qwen3"});
}

TEST_F(CliZImage, WrongFolders) {
  std::filesystem::remove(folder() / "tiny/transformer/diffusion_pytorch_model-00002-of-00002.safetensors");
  expect_error(3, draw({"a"}), {"diffusion_pytorch_model-00002-of-00002.safetensors"});
  std::filesystem::remove_all(folder() / "tiny/vae");
  expect_error(3, draw({"a"}), {"vae/config.json"});
}

TEST_F(CliZImage, Inspect) {
  const Finished f = tenon({"inspect", "tiny", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.out.find("Z-Image"), std::string::npos) << f.out;
  // As published: with the encoder's last layer, which no prompt is read from.
  const Finished whole = tenon({"inspect", "z-image-shapes", "--json"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto encoder = nlohmann::json::parse(whole.out).at("components").at("text_encoder");
  EXPECT_TRUE(encoder.at("unexpected").empty()) << encoder.at("unexpected");
  EXPECT_EQ(encoder.at("ignored").size(), 12U);
}

TEST_F(CliZImage, InspectOpensWhatDrawingOpens) {
  const std::filesystem::path scheduler = folder() / "tiny/scheduler/scheduler_config.json";
  std::ofstream(scheduler) << R"({"_class_name": "FlowMatchFooScheduler"})";
  const Finished f = tenon({"inspect", "tiny"});
  EXPECT_EQ(f.code, 3) << f.out;
  EXPECT_NE(f.out.find("_class_name] scheduler 'FlowMatchFooScheduler' is not implemented"), std::string::npos)
      << f.out;
  EXPECT_NE(f.out.find("\nnot usable"), std::string::npos) << f.out;
  expect_error(3, draw({"a"}), {"FlowMatchFooScheduler"});
}

TEST_F(CliZImage, InspectNamesWeightsThatAreNotFloatingPoint) {
  const std::filesystem::path file = folder() / "tiny/vae/diffusion_pytorch_model.safetensors";
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const size_t at = bytes.find("F32", bytes.find("\"decoder.conv_in.bias\""));
  ASSERT_NE(at, std::string::npos);
  std::ofstream(file, std::ios::binary) << bytes.replace(at, 3, "I32");
  const Finished f = tenon({"inspect", "tiny"});
  EXPECT_EQ(f.code, 3) << f.out;
  EXPECT_NE(f.out.find("'decoder.conv_in.bias' is of type i32, expected floating point\nnot usable"), std::string::npos)
      << f.out;
}

TEST_F(CliZImage, VerifiesEveryLaunch) {
  for (const char* type : {"f32", "bf16", "e4m3"}) {
    const Finished f = tenon({"verify", "-m", "tiny", "--no-parity", "-q", "-W", "48", "-H", "32", "--type", type});
    EXPECT_EQ(f.code, 0) << type << "\n" << f.out << f.err;
  }
}

// The full size without weights: what runs in eight bits, and the number of launches.
TEST_F(CliZImage, ExplainsTheFullSize) {
  const Finished f = tenon({"explain", "-m", "random:z-image", "--type", "e4m3", "--json", "--device", "null"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_LE(nlohmann::json::parse(f.out).at("counts").at("total"), 10 * 30 + 8 * 2 + 3);
}

}  // namespace
}  // namespace cli
