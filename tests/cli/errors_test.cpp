// Bad input: one clear error, the right exit code, no crash, no file left.
#include <cstdlib>
#include <fstream>

#include "tenon/io/image.h"
#include "tests/cli/cli.h"

namespace cli {
namespace {

std::string safetensors(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(header.size() >> (8 * i));
  return out + header + data;
}

class CliErrors : public CliTest {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder() / name, std::ios::binary) << bytes;
    return name;
  }
  void expect_model_error(const std::string& bytes, const std::string& part) const {
    expect_error(3, {"generate", "a circle", "-m", write("bad.safetensors", bytes)}, {"bad.safetensors", part});
  }
};

TEST_F(CliErrors, UsageIsTwo) {
  expect_error(2, {}, {"no command"});
  expect_error(2, {"paint"}, {"paint"});
  expect_error(2, {"generate", "a circle", "--bogus"}, {"--bogus", "tenon generate --help"});
  expect_error(2, {"generate", "a <lora:b:x>", "-m", model()}, {"<lora:b:x>", "number as weight"});
  expect_error(2, {"generate", "a", "-n", "<lora:b>", "-m", model()}, {"<lora:b>", "with --lora"});
  expect_error(2, {"generate", "a", "--lora", "b:c", "-m", model()}, {"FILE:WEIGHT", "b:c"});
  expect_error(2, {"generate", "a", "--lora-rank", "0", "-m", model()}, {"rank of LoRAs", "1..4096"});
  expect_error(2, {"generate", "a", "--lora-apply", "beside", "-m", model()}, {"beside", "side"});
  expect_error(3, {"generate", "a <lora:b:1>", "-m", model()}, {"<lora:b>", "b.safetensors"});
  expect_error(3, {"generate", "a", "--lora", "b:0.5", "--lora-dir", "loras", "-m", model()},
               {"[b]", "no such file", "loras/b.safetensors"});
  const Finished whole = tenon({"generate", "a", "--lora", "b.safetensors", "-m", model()});
  EXPECT_NE(whole.err.find("[b.safetensors] there is no such file\n"), std::string::npos) << whole.err;
  expect_error(3, {"generate", "a <lora:b.safetensors:1>", "-m", model()}, {"there is no b.safetensors\n"});
  for (const char* weight : {"1e39", "1e30", "-10001", "nan", "-inf"}) {
    const std::string use = std::string("b:") + weight;
    expect_error(2, {"generate", "a", "--lora", use, "-m", model()}, {"[b]", "a number from -10000 to 10000"});
  }
  expect_error(2, {"generate", "a <lora:b:1e30>", "-m", model()}, {"[<lora:b>]", "from -10000 to 10000, got 1e+30"});
  expect_error(2, {"generate", "a circle", "--steps", "many"}, {"many"});
  expect_error(2, {"generate", "-m", model()}, {"prompt"});
  expect_error(2, {"generate", "a circle", "-p", "a square", "-m", model()}, {"more than one way"});
  expect_error(2, {"explain", "--part", "lungs"}, {"lungs"});
}

TEST_F(CliErrors, Offloading) {
  for (const char* size : {"many", "10 GB", "-3", "nan", "0MB", "1e30GB"})
    expect_error(2, {"generate", "a", "-m", model(), "--offload", size}, {"--offload", "is not a size"});
  for (const char* size : {"10GB", "800MiB", "900KB", "900kB", "64KiB", "4096B"})
    expect_error(2, {"generate", "a", "-m", model(), "--offload", size, "--device", "cpu"},
                 {"[offload]", "weights on cpu are already in host memory"});
  for (const char* verb : {"bench", "explain", "profile", "verify"}) {
    std::vector<std::string> call{verb, "-m", "random:tiny", "--offload", "2", "--device", "cpu"};
    if (std::string(verb) == "verify") call.emplace_back("--no-parity");
    expect_error(2, call, {"[offload]", "on cpu"});
  }
  expect_error(2, {"explain", "-m", "random:tiny", "--offload", "2", "--device", "null"}, {"[offload]", "on null"});
  expect_error(2, {"compile", "-m", "random:tiny", "--max-vram", "2"}, {"--offload", "kernels are the same wherever"});
  EXPECT_EQ(tenon({"compile", "--help"}).out.find("--offload"), std::string::npos);
}

// An exception of a type that matches nothing in the model.
TEST_F(CliErrors, MisspelledExceptionsOfATypeAreNamed) {
  expect_error(2, {"generate", "a", "-m", model(), "--type", "f32, bf16: up_blcoks"},
               {"[type]", "'up_blcoks'", "did you mean 'up_blocks'?"});
  expect_error(2, {"explain", "-m", "random:tiny", "--part", "vae-decode", "--type", "f32, bf16: text_enocder"},
               {"'text_enocder'", "did you mean 'text_encoder'?"});
  expect_error(2, {"explain", "-m", "random:vit-s14", "--type", "f32, bf16: blocks.0.atn.qkv"},
               {"did you mean 'blocks.0.attn.qkv'?"});
  expect_error(2, {"complete", "a", "-m", "sums", "--type", "f32, bf16: zz"},
               {"'zz'", "networks: decoder; weights such as "});
  for (const char* good : {"f32, bf16: vae_decoder", "f32, bf16: mid_block.attentions.0", "f32, bf16: text_encoder"}) {
    const Finished f = tenon({"explain", "-m", "random:tiny", "--part", "unet", "--type", good, "--device", "cpu"});
    EXPECT_EQ(f.code, 0) << f.err;
  }
}

TEST_F(CliErrors, BadSizesAndSteps) {
  expect_error(2, {"generate", "a circle", "-m", model(), "-W", "130"}, {"130", "128"});
  expect_error(2, {"generate", "a circle", "-m", model(), "-H", "0"}, {"--height"});
  expect_error(2, {"generate", "a circle", "-m", model(), "--steps", "0"}, {"--steps"});
  expect_error(2, {"generate", "a circle", "-m", model(), "--steps", "-3"}, {"--steps"});
  expect_error(2, {"generate", "a circle", "-m", model(), "-W", "64", "-H", "64", "--sampling-method", "magic"},
               {"magic"});
  expect_error(2, {"generate", "a circle", "-m", model(), "--type", "int3"}, {"int3"});
  expect_error(2, {"generate", "a circle", "-m", model(), "--seed", "-2"}, {"--seed"});
}

TEST_F(CliErrors, SamplerThatContradictsItsSchedule) {
  expect_error(
      2, {"generate", "a circle", "-m", model(), "--sampling-method", "DPM++ 2M Karras", "--scheduler", "discrete"},
      {"DPM++ 2M Karras", "discrete"});
}

// Neither clamped nor read as octal.
TEST_F(CliErrors, NumbersAreTakenAsWrittenOrNotAtAll) {
  expect_error(2, {"generate", "a circle", "-m", model(), "--seed", "18446744073709551615"},
               {"--seed", "18446744073709551615"});
  expect_error(2, {"generate", "a circle", "-m", model(), "-W", "99999999999999999999"},
               {"--width", "99999999999999999999"});
  expect_error(2, {"generate", "a circle", "-m", model(), "--steps", "0x10"}, {"--steps", "0x10"});
  expect_error(2, {"explain", "-m", model(), "-W", "0"}, {"--width"});
  EXPECT_EQ(tenon({"explain", "-m", model(), "-W", "064", "-H", "064", "--json"}).code, 0);
}

TEST_F(CliErrors, AbsurdSizeNamesTheLargestThatFits) {
  expect_error(4, {"generate", "a circle", "-m", model(), "-W", "32768", "-H", "32768"}, {"largest"});
}

TEST_F(CliErrors, PromptThatIsNotUtf8) {
  expect_error(2, {"generate", "a \xff circle", "-m", model()}, {"UTF-8", "byte 2"});
}

TEST_F(CliErrors, PromptFiles) {
  expect_error(2, {"generate", "--prompt-file", "nowhere.txt", "-m", model()}, {"nowhere.txt"});
  const std::string file = write("zero.txt", std::string("a\0b", 3));
  expect_error(2, {"generate", "--prompt-file", file, "-m", model()}, {"prompt", "zero byte"});
}

TEST_F(CliErrors, MissingPromptComesBeforeATakenName) {
  write("output.png", "mine");
  expect_error(2, {"generate", "-m", model()}, {"prompt"});
}

TEST_F(CliErrors, ModelsThatAreNone) {
  expect_error(3, {"generate", "a circle", "-m", "nowhere"}, {"nowhere"});
  expect_error(3, {"inspect", "nowhere"}, {"nowhere"});
  expect_error(2, {"generate", "a circle", "-m", "random:unknown"}, {"unknown", "sd15"});
  expect_error(3, {"generate", "a circle", "-m", "random:sd15"}, {"random:sd15", "random weights have no tokenizer"});
  const Finished nowhere = tenon({"inspect", "nowhere"}, {"TENON_MODEL_DIR=/models"});
  EXPECT_NE(nowhere.err.find("no model at nowhere or /models/nowhere"), std::string::npos) << nowhere.err;
  expect_error(3, {"generate", "a circle", "-m", std::string(300, 'm')}, {"no model at"});
  expect_error(3, {"inspect", std::string(300, 'm')}, {"mmm"});
  write("weights.ckpt", "PK");
  expect_error(3, {"generate", "a circle", "-m", "weights.ckpt"}, {"weights.ckpt"});
}

TEST_F(CliErrors, SafetensorsThatLie) {
  expect_model_error("", "8 bytes");
  expect_model_error("abc", "8 bytes");
  expect_model_error(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}", "header");
  expect_model_error(safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "1234"), "'a'");
  expect_model_error(safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[9],\"data_offsets\":[0,8]}}", "12345678"),
                     "'a'");
  expect_model_error(safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
                                 "123456"),
                     "'b'");
  expect_model_error(safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[NaN],\"data_offsets\":[0,4]}}", "1234"), "");
  expect_model_error(safetensors("{\"\xff\":1}", ""), "");
  expect_model_error(
      safetensors("{\"a\\n\\u001b\\u0000b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "1234"),
      "'a\\n\\x1b\\x00b'");
  expect_model_error(safetensors("{\"stray\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "1234"), "");
}

TEST_F(CliErrors, TruncatedModelFile) {
  namespace fs = std::filesystem;
  fs::copy(model(), folder() / "cut", fs::copy_options::recursive);
  const fs::path unet = folder() / "cut/unet/diffusion_pytorch_model.safetensors";
  ASSERT_TRUE(fs::exists(unet));
  fs::resize_file(unet, fs::file_size(unet) / 2);
  expect_error(3, {"generate", "a circle", "-m", "cut"}, {"diffusion_pytorch_model.safetensors"});
}

TEST_F(CliErrors, ModelConfigsThatLie) {
  namespace fs = std::filesystem;
  fs::copy(model(), folder() / "odd", fs::copy_options::recursive);
  const auto defaults = [&](const nlohmann::json& values, const std::string& part) {
    nlohmann::json index = nlohmann::json::parse(std::ifstream(folder() / "odd/model_index.json"));
    index["_tenon_defaults"] = values;
    std::ofstream(folder() / "odd/model_index.json") << index;
    expect_error(3, {"generate", "a circle", "-m", "odd"}, {"model_index.json", part});
  };
  defaults({{"width", 100}}, "'width' is 100, expected a multiple of 8");
  defaults({{"height", -8}}, "'height' is -8");
  defaults({{"steps", 0}}, "'steps' is 0");
  defaults({{"steps", 4294967298}}, "'steps' is 4294967298, expected a whole number from 1 to 1000");
  defaults({{"guidance_scale", -1}}, "'guidance_scale' is -1");
  defaults({{"sampler", "magic"}}, "'sampler' is \"magic\", expected one of ddim");
  defaults({{"width", "wide"}}, "'width' is \"wide\"");
  defaults({1, 2}, "expected a JSON object");
  fs::remove_all(folder() / "odd");
  fs::copy(model(), folder() / "odd", fs::copy_options::recursive);
  std::ofstream(folder() / "odd/scheduler/scheduler_config.json") << R"({"_class_name": "MagicScheduler"})";
  expect_error(3, {"generate", "a circle", "-m", "odd"}, {"MagicScheduler"});
}

// What is written says what it is; said before a model is opened.
TEST_F(CliErrors, EndingsOfOutputs) {
  expect_error(2, {"explain", "-m", "nowhere", "--html", "x.png"}, {"--html", "'x.png'", "ends in .html or .htm"});
  expect_error(2, {"profile", "-m", "nowhere", "--trace", "t.html"}, {"--trace", "'t.html'", "ends in .json"});
}

TEST_F(CliErrors, FlagsThatExclude) {
  expect_error(2, {"explain", "-m", model(), "--plan", "--html", "a.html"}, {"--plan", "--html"});
  expect_error(2, {"explain", "-m", model(), "--plan", "--json"}, {"--plan", "--json"});
  expect_error(2, {"explain", "-m", model(), "--compare", "--no-fusion"}, {"--compare", "--no-fusion"});
  expect_error(2, {"bench", "-m", model(), "--anchors", "--no-anchors"}, {"--anchors", "--no-anchors"});
  expect_error(2, {"verify", "-m", model(), "--fixtures", "nowhere"}, {"--fixtures", "nowhere"});
}

// Output that could not be written is a failure, however it was printed.
TEST_F(CliErrors, StandardOutputThatIsFull) {
  for (const char* arguments : {"verify --part text --no-parity", "bench --part text --runs 1 --no-anchors",
                                "explain --part text", "env", "--help"}) {
    const std::string run = std::string(TENON_BINARY_DIR "/bin/tenon ") + arguments + " -q >/dev/full 2>/dev/null";
    EXPECT_EQ(WEXITSTATUS(std::system(run.c_str())), 1) << arguments;
  }
}

TEST_F(CliErrors, OutputThatCannotBeWritten) {
  write("taken.png", "mine");
  expect_error(2, {"generate", "a circle", "-m", model(), "-o", "taken.png"}, {"taken.png"});
  expect_error(1, {"generate", "a circle", "-m", model(), "-o", "no/such/folder.png"}, {"folder"});
  expect_error(2, {"generate", "a circle", "-m", model(), "-o", "picture.bmp"}, {".png"});
  expect_error(2, {"generate", "a circle", "-m", model(), "-o", ""}, {"--output", "empty"});
  expect_error(2, {"generate", "a circle", "-m", model(), "-o", "a_%s.png"}, {"%d"});
  expect_error(1, {"generate", "a circle", "-m", model(), "-o", std::string(300, 'n') + ".png"}, {"too long"});
  std::ifstream in(folder() / "taken.png");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "mine");
}

TEST_F(CliErrors, InitPictures) {
  write("no.png", "not a picture");
  expect_error(2, {"generate", "a circle", "-m", model(), "-i", "no.png"}, {"no.png"});
  expect_error(2, {"generate", "a circle", "-m", model(), "-i", "missing.png"}, {"missing.png"});
  expect_error(2, {"generate", "a circle", "-m", model(), "--strength", "0.5"}, {"--init-img"});
  tenon::write_png(folder() / "odd.png", {100, 60, 3, std::vector<uint8_t>(18000)}, {}, tenon::Overwrite::No);
  expect_error(2, {"generate", "a circle", "-m", model(), "-i", "odd.png", "--resize-mode", "squeeze"},
               {"squeeze", "stretch, crop, fill"});
  expect_error(2, {"generate", "a circle", "-m", model(), "--resize-mode", "crop"}, {"--resize-mode", "--init-img"});
  tenon::write_png(folder() / "thin.png", {64, 4, 3, std::vector<uint8_t>(768)});
  expect_error(2, {"generate", "a circle", "-m", model(), "-i", "thin.png"}, {"init image", "64x4", "at least 8"});
  tenon::write_png(folder() / "even.png", {64, 64, 3, std::vector<uint8_t>(12288)}, {}, tenon::Overwrite::No);
  expect_error(2, {"generate", "a circle", "-m", model(), "-i", "even.png", "--strength", "0.01", "--steps", "2"},
               {"strength 0.01 of 2 steps"});
}

TEST_F(CliErrors, UnknownDevice) {
  expect_error(6, {"explain", "-m", model(), "--device", "abacus"}, {"abacus", "cpu"});
}

TEST_F(CliErrors, Architectures) {
  expect_error(2, {"generate", "x", "--eta", "abc"}, {"--eta: expected a number, got 'abc'", "tenon generate --help"});
  expect_error(2, {"train", "lora", "--rank", "0"}, {"--rank", "tenon train lora --help"});
  expect_error(2, {"compile", "-m", model(), "--arch", ""}, {"--arch", "empty"});
  expect_error(2, {"compile", "-m", model(), "--arch", "sm_89,sm_89"}, {"--arch", "sm_89", "more than once"});
  expect_error(2, {"compile", "-m", model(), "--arch", "sm_1"}, {"--arch", "sm_1", "sm_89, sm_90a"});
  // All names are checked before a model is opened.
  expect_error(2, {"compile", "-m", "nowhere", "--arch", "sm_90a,foo"}, {"--arch", "foo", "sm_89, sm_90a"});
}

TEST_F(CliErrors, PeersWithoutAnInterpreter) {
  const std::vector<std::string> bench{"bench",        "-m",           "random:vit-s14", "-W", "28", "-H",     "28",
                                       "--no-anchors", "--no-unfused", "--runs",         "1",  "-q", "--peer", "torch"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), bench.begin(), bench.end());
    return more;
  };
  expect_error(2, with({"--peer-python", "no-such-python"}), {"--peer-python", "no-such-python on PATH"});
  expect_error(2, with({"--peer-python", "./python"}), {"--peer-python", "./python"});
  // A name on PATH is found; running it then fails because it is not a Python with torch.
  const Finished run = tenon(with({"--peer-python", "false"}));
  EXPECT_EQ(run.code, 1) << run.err;
}

// The interpreter here is a shell script that gives back what it was given.
TEST_F(CliErrors, PeersGetTheThreadsAndTheDeviceOfTheRun) {
  write("python", "#!/bin/sh\necho '{\"given\": \"'\"$*\"'\"}'\n");
  std::filesystem::permissions(folder() / "python", std::filesystem::perms::owner_all);
  const auto given = [&](const std::vector<std::string>& more, const std::vector<std::string>& environment) {
    std::vector<std::string> bench{"bench",        "-m",     "random:vit-s14", "-W",    "28",
                                   "-H",           "28",     "--runs",         "1",     "--no-anchors",
                                   "--no-unfused", "--json", "--peer",         "torch", "--peer-python",
                                   "./python"};
    bench.insert(bench.end(), more.begin(), more.end());
    const Finished run = tenon(bench, environment);
    EXPECT_EQ(run.code, 0) << run.err;
    const auto out = nlohmann::json::parse(run.out);
    const std::string all = out.at("peers").at("given").get<std::string>() + " ";
    EXPECT_NE(all.find(" --threads " + out.at("threads").dump() + " "), std::string::npos) << all;
    EXPECT_NE(all.find(" --device cpu "), std::string::npos) << all;
  };
  given({"--threads", "1"}, {});
  given({}, {"TENON_THREADS=1"});
  given({}, {});
}

// A GPU that cannot be used is named, and the work continues without it.
TEST_F(CliErrors, AutomaticDeviceWithoutAUsableGpu) {
  const Finished none = tenon({"explain", "-m", model(), "--part", "text"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(none.err, "");
}

// A fake driver with one GPU; whether NVRTC is there depends on the machine.
TEST_F(CliErrors, AutomaticDeviceNamesTheGpu) {
  const std::string driver = TENON_BINARY_DIR "/fake_driver";
  if (!std::filesystem::exists(driver + "/libcuda.so.1")) GTEST_SKIP() << "the pretended driver is not built";
  const Finished found = tenon({"explain", "-m", model(), "--part", "text"}, {"TENON_CUDA_PATH=" + driver});
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_NE(found.err.find("Fake GPU"), std::string::npos) << found.err;
  const Finished quiet = tenon({"explain", "-m", model(), "--part", "text", "-q"}, {"TENON_CUDA_PATH=" + driver});
  EXPECT_EQ(quiet.err, "");
  const Finished asked =
      tenon({"explain", "-m", model(), "--part", "text", "--device", "cpu"}, {"TENON_CUDA_PATH=" + driver});
  EXPECT_EQ(asked.err, "");
}

// No driver, or one with every GPU hidden.
TEST_F(CliErrors, NoGpu) {
  const Finished run = tenon({"generate", "a circle", "-m", model(), "--device", "cuda"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(run.code, 6);
  EXPECT_NE(run.err.find("--device cpu needs none"), std::string::npos) << run.err;
}

TEST_F(CliErrors, DeviceThatComputesNothing) {
  expect_error(2, {"generate", "a circle", "-m", model(), "--device", "null"}, {"null", "cannot draw"});
  for (const char* verb : {"bench", "profile", "verify"})
    expect_error(2, {verb, "-m", "random:tiny", "--device", "null"}, {"--device", "null computes nothing"});
  expect_error(2, {"explain", "-m", "random:tiny", "--time", "--device", "null"}, {"null computes nothing"});
  expect_error(2, {"train", "grpo", "--device", "null", "-o", "grpo"}, {"[device]", "cannot train"});
  expect_error(2, {"train", "lora", "--device", "null", "-o", "lora"}, {"[device]", "cannot train"});
  expect_error(2, {"train", "lora", "-m", "default-model", "--type", "e4m3", "-o", "lora"},
               {"which layers of 'default-model' tolerate it; use bf16 or f32\n"});  // no exceptions, which it refuses
  for (const char* run : {"grpo", "lora"}) EXPECT_FALSE(std::filesystem::exists(folder() / run)) << run;
}

// Flags of verbs for single networks that do not apply to the model, and errors reported before any work.
TEST_F(CliErrors, FlagsOfOtherModels) {
  expect_error(2, {"explain", "-m", "sums", "-W", "64"}, {"[--width]", "does not apply to sums"});
  expect_error(2, {"explain", "-m", "sums", "--steps", "4"}, {"[--steps]", "does not apply to sums"});
  expect_error(2, {"explain", "-m", "random:tiny", "--context", "64"}, {"[--context]", "random:tiny"});
  expect_error(2, {"explain", "-m", "random:vit-s14", "--cfg-scale", "4"}, {"[--cfg-scale]", "random:vit-s14"});
  const Finished peer = tenon({"bench", "-m", "random:tiny", "--peer", "torch", "--peer-python", "sh"});
  EXPECT_EQ(peer.code, 2) << peer.err;
  EXPECT_NE(peer.err.find("use -m random:sd15"), std::string::npos) << peer.err;
  EXPECT_EQ(peer.err.find("anchors"), std::string::npos) << peer.err;
}

// As whole numbers: CLI11 would read these.
TEST_F(CliErrors, NumbersAreDecimal) {
  for (const char* number : {"0x10", " 1", "+1", "1_0", "1 ", "1,5"}) {
    expect_error(2, {"generate", "a circle", "--strength", number}, {"--strength: expected a number, got", number});
    expect_error(2, {"generate", "a circle", "--eta", number}, {"--eta", number});
    expect_error(2, {"explain", "--cfg-scale", number}, {"--cfg-scale", number});
    expect_error(2, {"train", "grpo", "--lr", number}, {"--learning-rate", number});
  }
  for (const char* number : {"inf", "-infinity", "nan"})
    expect_error(2, {"train", "grpo", "--reward-timeout", number}, {"--reward-timeout: expected a finite", number});
  for (const char* number : {"1e400", "-1e400", "1e-400"}) {
    expect_error(2, {"generate", "a circle", "--eta", number}, {"--eta: '", number, "' is out of range"});
    expect_error(2, {"train", "grpo", "--reward-weights", number}, {"--reward-weights: '", "' is out of range"});
  }
  expect_error(2, {"train", "grpo", "--reward-weights", "1,nan"}, {"--reward-weights: expected a finite", "nan"});
}

// NaN parses as a number but must be refused.
TEST_F(CliErrors, GuidanceScales) {
  for (const char* scale : {"nan", "inf", "-1", "many"}) {
    expect_error(2, {"explain", "--cfg-scale", scale}, {"--cfg-scale", scale});
    expect_error(2, {"generate", "a circle", "--cfg-scale", scale}, {"--cfg-scale", scale});
  }
}

TEST_F(CliErrors, BadEnvironment) {
  const Finished loud = tenon({"env"}, {"TENON_LOG_LEVEL=loud"});
  EXPECT_EQ(loud.code, 2);
  EXPECT_NE(loud.err.find("[TENON_LOG_LEVEL] unknown level 'loud'"), std::string::npos) << loud.err;
  EXPECT_EQ(tenon({"env"}, {"TENON_LOG_LEVEL="}).code, 0) << "empty is unset";
  EXPECT_EQ(tenon({"env"}, {"TENON_THREADS=none"}).code, 2);
  for (const std::string variable : {"TENON_CUDA_CORE", "TENON_CUDA_TUNE", "TENON_CPU_ISA", "TENON_NO_FUSION",
                                     "TENON_NO_FOLD", "TENON_DETERMINISTIC"}) {
    const Finished run = tenon({"env"}, {variable + "=none"});
    EXPECT_EQ(run.code, 2);
    EXPECT_NE(run.err.find("[" + variable + "] expected"), std::string::npos) << run.err;
  }
  for (const char* bad : {"no", "false", "2"})
    EXPECT_EQ(tenon({"explain", "-m", "random:tiny"}, {std::string("TENON_NO_FUSION=") + bad}).code, 2) << bad;
  for (const char* good : {"", "0", "1"})
    EXPECT_EQ(tenon({"env"}, {std::string("TENON_NO_FUSION=") + good}).code, 0) << good;
  const Finished nine = tenon({"generate", "a star", "--batch-size", "9"}, {"TENON_DETERMINISTIC=batch"});
  EXPECT_EQ(nine.code, 2);
  EXPECT_NE(nine.err.find("at most 8"), std::string::npos) << nine.err;
}

TEST_F(CliErrors, ADeviceThatDoesNotExist) {
  std::filesystem::create_directory(folder() / "run");
  std::ofstream(folder() / "run/metrics.jsonl") << "{\"step\":1,\"loss\":2}\n";
  for (const std::vector<std::string>& verb :
       std::vector<std::vector<std::string>>{{"env"}, {"inspect"}, {"version"}, {"plot", "run"}})
    for (const char* device : {"bogus", "bogus:1", "99"}) {
      std::vector<std::string> call = verb;
      call.insert(call.end(), {"--device", device});
      expect_error(6, call, {"[device] no backend '", device});
    }
}

// A list without items does not take the next flag.
TEST_F(CliErrors, EmptyLists) {
  expect_error(2, {"compile", "--arch", ",", "-q"}, {"--arch", "empty list", "','"});
  expect_error(2, {"train", "grpo", "--reward-weights", ",", "-q"}, {"--reward-weights", "empty list"});
  expect_error(2, {"train", "grpo", "--reward-weights", "1,x"}, {"--reward-weights", "expected a number, got 'x'"});
  expect_error(2, {"train", "grpo", "--lora-targets", ",", "-q"}, {"--lora-targets", "empty list"});
  expect_error(2, {"train", "lora", "--targets", ",,", "-q"}, {"--targets", "empty list"});
}

TEST_F(CliErrors, AfterTheMarkNothingIsAFlag) {
  expect_error(2, {"generate", "--", "-x", "--steps"}, {"'--steps' was not expected", "needs quotes"});
  expect_error(2, {"generate", "--stepz", "--", "-x"}, {"there is no flag --stepz"});
}

// "--flag=" does not take the next argument as its value.
TEST_F(CliErrors, EmptyValuesAfterAnEqualsSign) {
  expect_error(2, {"generate", "a", "--lora-dir=", "--json"}, {"--lora-dir: is empty"});
  expect_error(2, {"train", "lora", "--caption=", "--tensorboard"}, {"--caption", "is empty"});
  expect_error(2, {"generate", "a", "--device=", "cpu"}, {"--device: is empty"});
  expect_error(2, {"generate", "a", "--steps=", "2"}, {"--steps"});
  const Finished f = tenon({"generate", "a", "--negative-prompt=", "--json", "--steps", "1", "-m", model()});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(nlohmann::json::parse(f.out).at("negative_prompt"), "");
}

TEST_F(CliErrors, ASwitchTakesNoValue) {
  expect_error(2, {"generate", "--overwrite=abc", "x"}, {"--overwrite: expected no value, got 'abc'"});
}

TEST_F(CliErrors, AFolderIsNoLora) {
  std::filesystem::create_directory(folder() / "pics");
  expect_error(3, {"generate", "a", "--lora", "pics", "-m", model()},
               {"[pics] is a folder, expected a LoRA file", "no pytorch_lora_weights.safetensors or adapter_model",
                "no pics.safetensors"});
}

TEST_F(CliErrors, OneOfSeveralPrompts) {
  expect_error(2, {"generate", "-p", "a circle", "-p", "b\xff", "-m", "z-image-shapes"},
               {"[prompt 2 ('b", "not UTF-8"});
  expect_error(2, {"generate", "-p", "a circle", "-p", "b <hypernet:x:1>", "-m", "z-image-shapes"},
               {"[prompt 2 ('b <hypernet:x:1>')]"});
}

// What the system refuses is no wrong usage.
TEST_F(CliErrors, FoldersThatCannotBeCreated) {
  expect_error(1, {"train", "grpo", "--dataset", "sums", "-o", "/proc/none/run"},
               {"/proc/none/run", "cannot be created"});
}

// Whatever names the model, one of another kind has one exit code.
TEST_F(CliErrors, ModelsOfAnotherKind) {
  for (const char* model : {"random:sd15", "default-model"})
    expect_error(3, {"complete", "a", "-m", model}, {"cannot write text"});
}

// A file system of 16 kB in its own mount namespace; skipped on machines that do not allow this.
TEST_F(CliErrors, FullDisk) {
  const std::string mount = "mkdir full && mount -t tmpfs -o size=16k tmpfs full";
  const std::string in_namespace = "cd '" + folder().string() + "' && unshare -rm sh -c '" + mount + " && ";
  if (std::system((in_namespace + "true' 2>/dev/null; rmdir full 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "no mount namespaces here";
  std::filesystem::remove(folder() / "full");
  const std::string run = TENON_BINARY_DIR "/bin/tenon generate \"a circle\" -q --steps 1 -W 128 -H 128 -m \"" +
                          model() + "\" -o full/a.png 2>error.txt; code=$?; ls -A full >left.txt; exit $code'";
  const int status = std::system((in_namespace + run).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  std::ifstream error(folder() / "error.txt"), left(folder() / "left.txt");
  const std::string text{std::istreambuf_iterator<char>(error), {}}, names{std::istreambuf_iterator<char>(left), {}};
  EXPECT_NE(text.find("full/a.png"), std::string::npos) << text;
  EXPECT_EQ(names, "");
}

}  // namespace
}  // namespace cli
