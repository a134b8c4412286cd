// Pictures through the command line: names, texts, streams, interruption, reproducibility.
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tenon/io/image.h"
#include "tests/cli/cli.h"
#include "tests/fixtures/checkpoint.h"
#include "tests/fixtures/lora_files.h"

namespace cli {
namespace {
using nlohmann::json;

class CliGenerate : public CliTest {
 protected:
  /// A picture that is quick to draw, with more flags.
  std::vector<std::string> quick(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"generate", "a circle", "-m",      model(), "-W",          "64",
                                 "-H",       "64",       "--steps", "2",     "--cfg-scale", "3"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string hash(const std::vector<std::string>& more) const {
    std::vector<std::string> flags{"--json", "-o", "h.png", "--overwrite"};
    flags.insert(flags.end(), more.begin(), more.end());
    const Finished f = tenon(quick(flags));
    EXPECT_EQ(f.code, 0) << f.err;
    return f.code ? "" : json::parse(f.out).at("pixels_sha256").get<std::string>();
  }
};

TEST_F(CliGenerate, WritesOnePictureAndSaysWhere) {
  const Finished f = tenon(quick());
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.out, "output.png\n");
  EXPECT_EQ(files(), std::vector<std::string>{"output.png"});
  const tenon::Image image = tenon::read_png(folder() / "output.png");
  EXPECT_EQ(image.width, 64);
  EXPECT_EQ(image.height, 64);
  EXPECT_NE(f.err.find("step 1/"), std::string::npos) << f.err;
  EXPECT_EQ(tenon(quick({"-q", "-o", "b.png"})).err, "");
}

TEST_F(CliGenerate, WritesAJpegIfTheNameSaysSo) {
  for (const auto& [name, more] : {std::pair{"a.JPG", ""}, {"b.jpeg", "--no-metadata"}}) {
    std::vector<std::string> flags{"-o", name};
    if (*more) flags.emplace_back(more);
    EXPECT_EQ(tenon(quick(flags)).out, std::string(name) + "\n");
    std::ifstream in(folder() / name, std::ios::binary);
    const std::string file(std::istreambuf_iterator<char>(in), {});
    const std::span<const std::byte> read(reinterpret_cast<const std::byte*>(file.data()), file.size());
    EXPECT_EQ(tenon::decode_jpeg(read, name).width, 64);
    EXPECT_EQ(file.find("UNICODE") != std::string::npos, !*more);
    EXPECT_EQ(file.find("tenon: {") != std::string::npos, !*more);
  }
  expect_error(2, quick({"-o", "c.webp"}), {"c.webp", ".png, .jpg or .jpeg"});
}

TEST_F(CliGenerate, NeverReplacesUnasked) {
  ASSERT_EQ(tenon(quick()).code, 0);
  const Finished again = tenon(quick());
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("--overwrite"), std::string::npos) << again.err;
  EXPECT_EQ(tenon(quick({"--overwrite"})).code, 0);
}

TEST_F(CliGenerate, Loras) {
  std::filesystem::create_directory(folder() / "styles");
  fixtures::recorded_lora("kohya").write(folder() / "styles/ink.safetensors");
  fixtures::recorded_lora("diffusers").write(folder() / "own.safetensors");
  const std::string plain = hash({}), ink = hash({"--lora", "styles/ink.safetensors:0.8"});
  EXPECT_NE(ink, plain);
  EXPECT_EQ(hash({"--lora", "ink:+0.8", "--lora-dir", "styles"}), ink);
  std::filesystem::create_directory(folder() / "styles/run");  // as train lora writes it
  fixtures::recorded_lora("kohya").write(folder() / "styles/run/pytorch_lora_weights.safetensors");
  EXPECT_EQ(hash({"--lora", "styles/run:0.8"}), ink);
  EXPECT_EQ(hash({"--lora", "run:0.8", "--lora-dir", "styles"}), ink);
  EXPECT_EQ(hash({"--lora", "styles/ink:0"}), plain);
  const Finished f = tenon(quick({"--lora", "own", "--lora", "styles/ink:-0.5", "--json"}));
  ASSERT_EQ(f.code, 0) << f.err;
  const auto loras = json::parse(f.out).at("loras");
  ASSERT_EQ(loras.size(), 2U);
  EXPECT_EQ(loras[1].at("file"), "ink.safetensors");
  EXPECT_EQ(loras[1].at("weight"), -0.5);
  EXPECT_NE(f.err.find("layers of text_encoder"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("rank 4, weight -0.5"), std::string::npos) << f.err;
  fixtures::recorded_lora("z-image").write(folder() / "other.safetensors");
  expect_error(3, quick({"--lora", "other", "-o", "new.png"}), {"other.safetensors", "not a LoRA for this model"});
  expect_error(2, quick({"--lora", "own", "--lora-apply", "side", "-o", "new.png"}),
               {"own.safetensors", "cannot be applied as a side branch"});
}

TEST_F(CliGenerate, NamesOfSeveral) {
  EXPECT_EQ(tenon(quick({"-b", "2"})).out, "output_0.png\noutput_1.png\n");
  EXPECT_EQ(tenon(quick({"--batch-size", "2", "-o", "a_%03d.png", "--output-begin-idx", "7"})).out,
            "a_007.png\na_008.png\n");
  std::filesystem::create_directory(folder() / "all");
  EXPECT_EQ(tenon(quick({"-b", "2", "-o", "all"})).out, "all/0000.png\nall/0001.png\n");
}

TEST_F(CliGenerate, SeedsOfSeveralAreInRange) {
  const std::string largest = "9223372036854775807";
  EXPECT_EQ(tenon(quick({"-s", largest})).code, 0);
  for (const char* flag : {"-b", "--batch-size"})
    expect_error(2, quick({"-s", largest, flag, "2", "-o", "new_%d.png"}), {"--seed", "2 images take as many seeds"});
}

TEST_F(CliGenerate, WhatGuidanceWouldNeedIsSaidToHaveNoEffect) {
  const std::string said = "guidance is off, so that --negative-prompt has no effect";
  for (const char* scale : {"1", "2"}) {
    const Finished f = tenon({"generate", "a circle", "-m", model(), "-W", "64", "-H", "64", "--steps", "1",
                              "--cfg-scale", scale, "-n", "a box", "--overwrite"});
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_EQ(f.err.find(said) != std::string::npos, scale == std::string("1")) << f.err;
  }
}

TEST_F(CliGenerate, WhatLorasWouldNeedIsSaidToHaveNoEffect) {
  fixtures::recorded_lora("kohya").write(folder() / "ink.safetensors");
  const auto log_of = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--lora-partial", "--lora-rank", "8", "--overwrite"});
    const Finished f = tenon(quick(more));
    EXPECT_EQ(f.code, 0) << f.err;
    return f.err;
  };
  const std::string without = log_of({"--lora-apply", "side"});
  for (const char* flag : {"--lora-partial", "--lora-rank", "--lora-apply"})
    EXPECT_NE(without.find(std::string("there is no LoRA, so that ") + flag + " has no effect"), std::string::npos)
        << without;
  EXPECT_EQ(log_of({"--lora", "ink", "--lora-apply", "side"}).find("has no effect"), std::string::npos);
  EXPECT_NE(log_of({"--lora", "ink"}).find("--lora-apply is not side, so that --lora-rank has no effect"),
            std::string::npos);
}

TEST_F(CliGenerate, ANumberForANameWithoutOneIsSaidToHaveNoEffect) {
  const std::string said = "the output's name has no number, so that --output-begin-idx has no effect";
  for (const auto& [name, idle] :
       {std::pair("one.png", true), std::pair("one_%d.png", false), std::pair("./", false)}) {
    const Finished f = tenon(quick({"--output-begin-idx", "7", "-o", name}));
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_EQ(f.err.find(said) != std::string::npos, idle) << name << "\n" << f.err;
  }
  EXPECT_EQ(tenon(quick({"--output-begin-idx", "7", "-b", "2", "-o", "two.png"})).err.find(said), std::string::npos);
}

// Only steps that the user asked for are the user's mistake.
TEST_F(CliGenerate, DefaultStepsThatDoNotFitTheSchedulerAreTheModels) {
  std::filesystem::copy(model(), folder() / "short", std::filesystem::copy_options::recursive);
  std::ofstream(folder() / "short/scheduler/scheduler_config.json")
      << R"({"_class_name": "DDIMScheduler", "num_train_timesteps": 10})";
  const std::vector<std::string> draw = {"generate", "a", "-m", "short", "-W", "64", "-H", "64", "-o", "new.png"};
  const auto with_steps = [&](const char* steps) {
    std::vector<std::string> out = draw;
    out.insert(out.end(), {"--steps", steps});
    return out;
  };
  expect_error(3, draw, {"[short] its default of 20 steps", "expected 1..10, got 20"});
  expect_error(2, with_steps("11"), {"[steps] expected 1..10, got 11"});
  EXPECT_EQ(tenon(with_steps("2")).code, 0);
}

TEST_F(CliGenerate, APictureIsItsOwnInABatch) {
  const auto last_hash = [&](const std::vector<std::string>& flags) {
    std::istringstream lines(tenon(quick(flags)).out);
    std::string line, last;
    while (std::getline(lines, line)) last = json::parse(line).at("pixels_sha256");
    return last;
  };
  const std::string alone = last_hash({"--json", "-s", "6", "--deterministic", "batch", "-o", "alone.png"});
  EXPECT_EQ(last_hash({"--json", "--batch-size", "2", "-s", "5", "--deterministic", "batch"}), alone);
  EXPECT_EQ(last_hash({"--json", "-s", "6", "-o", "run.png"}), alone);  // always true on the CPU
  expect_error(2, quick({"--batch-size", "9", "--deterministic", "batch", "-o", "nine_%d.png"}),
               {"batch", "9", "at most 8", "-b"});
  expect_error(2, quick({"--deterministic", "bach", "-o", "b.png"}), {"--deterministic", "batch"});
}

TEST_F(CliGenerate, JsonLineForEveryPicture) {
  const Finished f = tenon(quick({"--json", "--batch-size", "2", "-s", "5"}));
  ASSERT_EQ(f.code, 0) << f.err;
  std::istringstream lines(f.out);
  std::string line;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    const json j = json::parse(line);
    EXPECT_EQ(j.at("seed"), 5 + i);
    EXPECT_EQ(j.at("steps"), 2);
    EXPECT_EQ(j.at("width"), 64);
    for (const char* key : {"path", "sampler", "cfg_scale", "timings", "pixels_sha256", "timesteps", "peak_bytes"})
      EXPECT_TRUE(j.contains(key)) << key;
  }
}

// Every line of the bar fits a terminal of this width, down to none at all.
TEST_F(CliGenerate, ProgressInANarrowTerminal) {
  for (const unsigned short columns : {1, 2, 30, 200}) {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    ASSERT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
    const int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    const Finished f = tenon(quick({"-o", std::to_string(columns) + ".png"}), {"TERM=xterm", "TENON_LOG_LEVEL=error"},
                             [other] { dup2(other, STDERR_FILENO); });
    EXPECT_EQ(f.code, 0);
    std::string text(4096, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(read(terminal, text.data(), text.size()), 0)));
    close(other);
    close(terminal);
    EXPECT_EQ(text.find("█") != text.npos, columns == 200) << columns << ": " << text;
    EXPECT_EQ(text.find("s/step") != text.npos, columns >= 30) << columns << ": " << text;
    if (columns == 200) continue;  // has characters of several bytes
    std::istringstream lines(std::regex_replace(text, std::regex("\x1b\\[K|\n"), ""));
    for (std::string line; std::getline(lines, line, '\r');) EXPECT_LT(line.size(), columns) << line;
  }
}

TEST_F(CliGenerate, PictureHoldsItsSettings) {
  ASSERT_EQ(tenon(quick({"-n", "a square", "-s", "9"})).code, 0);
  const auto text = tenon::read_png_text(folder() / "output.png");
  const std::string parameters = text.at("parameters");
  for (const char* part :
       {"a circle", "Negative prompt: a square", "Steps: 2", "Seed: 9", "Size: 64x64", "CFG scale: 3"})
    EXPECT_NE(parameters.find(part), std::string::npos) << part << " in " << parameters;
  const json about = json::parse(text.at("tenon"));
  for (const char* key : {"seed", "rng", "sampler", "model_sha256", "pixels_sha256"})
    EXPECT_TRUE(about.contains(key)) << key;
  for (const char* key : {"timings", "peak_bytes"}) EXPECT_FALSE(about.contains(key)) << key;
  const auto eta = [&](const std::string& sampler, const std::string& value) {
    const std::string name = sampler + value + ".png";
    EXPECT_EQ(tenon(quick({"--sampler", sampler, "--eta", value, "-o", name})).code, 0);
    const std::string said = tenon::read_png_text(folder() / name).at("parameters");
    const size_t at = said.find("Eta");
    return at == said.npos ? "" : said.substr(at, said.find(',', at) - at);
  };
  EXPECT_EQ(eta("euler_a", "0.5"), "Eta: 0.5");
  EXPECT_EQ(eta("euler_a", "1"), "");
  EXPECT_EQ(eta("ddim", "0.5"), "Eta DDIM: 0.5");
  EXPECT_EQ(eta("ddim", "0"), "");
  ASSERT_EQ(tenon(quick({"--no-metadata", "-o", "plain.png"})).code, 0);
  EXPECT_TRUE(tenon::read_png_text(folder() / "plain.png").empty());
}

TEST_F(CliGenerate, TheSameRequestGivesTheSameFile) {
  const auto bytes = [&](const std::string& name) {
    std::ifstream in(folder() / name, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  ASSERT_EQ(tenon(quick({"-o", "a.png", "--threads", "1"})).code, 0);
  ASSERT_EQ(tenon(quick({"-o", "b.png", "--threads", "2"})).code, 0);
  ASSERT_FALSE(bytes("a.png").empty());
  EXPECT_TRUE(bytes("a.png") == bytes("b.png"));
}

TEST_F(CliGenerate, TheEmbeddedModelSaysWhatItDoesNotKnow) {
  const Finished f = tenon({"generate", "a castle on a Hill", "--steps", "1", "-W", "64", "-H", "64"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.err.find("does not know 'castle', 'hill'"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("tenon generate --help"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("128x128 only, not on 64x64"), std::string::npos) << f.err;
  const Finished known = tenon({"generate", "a red circle on a white background", "--steps", "1", "-o", "b.png"});
  EXPECT_EQ(known.err.find("warning"), std::string::npos) << known.err;
  EXPECT_EQ(tenon({"generate", "a castle", "--steps", "1", "-o", "c.png", "-q"}).err, "");
}

// A sampler has one name however it is spelled, and so does its schedule, wherever it was set.
TEST_F(CliGenerate, PictureHoldsItsSamplerAndNoise) {
  namespace fs = std::filesystem;
  fs::copy(model(), folder() / "karras", fs::copy_options::recursive);
  json config = json::parse(std::ifstream(folder() / "karras/scheduler/scheduler_config.json"));
  config["use_karras_sigmas"] = true;
  std::ofstream(folder() / "karras/scheduler/scheduler_config.json") << config;
  int number = 0;
  const auto drawn = [&](const std::vector<std::string>& more) {
    const std::string name = std::to_string(number++) + ".png";
    std::vector<std::string> all{"generate", "a circle", "-W", "64", "-H", "64", "--steps", "2", "-o", name};
    all.insert(all.end(), more.begin(), more.end());
    const Finished f = tenon(all);
    EXPECT_EQ(f.code, 0) << f.err;
    auto text = tenon::read_png_text(folder() / name);
    json about = json::parse(text["tenon"]);
    about["log"] = f.err;
    about["parameters"] = text["parameters"];
    return about;
  };
  const json named = drawn({"-m", model(), "--sampling-method", "DPM++ 2M Karras", "--type", "f32"});
  const json configured = drawn({"-m", "karras", "--sampling-method", "DPMSolverMultistepScheduler", "--type", "f32"});
  for (const json& j : {named, configured}) {
    EXPECT_EQ(j.at("sampler"), "dpm++2m");
    EXPECT_EQ(j.at("schedule"), "karras");
    EXPECT_EQ(j.at("type"), "f32");
    EXPECT_EQ(j.at("pixels_sha256"), named.at("pixels_sha256"));
    const std::string parameters = j.at("parameters"), log = j.at("log");
    EXPECT_NE(parameters.find("Sampler: DPM++ 2M, "), std::string::npos) << parameters;
    EXPECT_NE(parameters.find("Schedule type: Karras"), std::string::npos) << parameters;
    EXPECT_NE(log.find("dpm++2m (karras)"), std::string::npos) << log;
    const auto sigmas = j.at("sigmas").get<std::vector<double>>();
    ASSERT_EQ(sigmas.size(), 2u);
    EXPECT_GT(sigmas[0], sigmas[1]);
    EXPECT_FALSE(j.contains("eta"));
    EXPECT_FALSE(j.contains("init_sha256"));
  }
  const json ancestral = drawn({"-m", "karras", "--sampling-method", "Euler a"});
  EXPECT_EQ(ancestral.at("sampler"), "euler_a");
  EXPECT_EQ(ancestral.at("schedule"), "discrete");
  EXPECT_EQ(ancestral.at("eta"), 1);
  EXPECT_EQ(ancestral.at("parameters").get<std::string>().find("Schedule type"), std::string::npos);
}

TEST_F(CliGenerate, DrawnSeedIsReported) {
  const Finished f = tenon(quick({"-s", "-1", "--json"}));
  ASSERT_EQ(f.code, 0) << f.err;
  const auto seed = json::parse(f.out).at("seed").get<uint64_t>();
  EXPECT_NE(f.err.find("seed " + std::to_string(seed)), std::string::npos) << f.err;
}

TEST_F(CliGenerate, SameBitsForOneAndTwoThreadsAndInABatch) {
  const std::string one = hash({"--threads", "1"});
  EXPECT_EQ(one, hash({"--threads", "2"}));
  const Finished f = tenon(quick({"--json", "--batch-size", "2", "-s", "41", "-o", "n_%d.png"}));
  std::istringstream lines(f.out);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_EQ(json::parse(second).at("pixels_sha256"), one);  // seed 42 is the default
}

TEST_F(CliGenerate, PictureToPicture) {
  ASSERT_EQ(tenon(quick({"-o", "first.png"})).code, 0);
  const Finished f = tenon({"generate", "-p", "a circle", "-m", model(), "-i", "first.png", "--strength", "0.5",
                            "--steps", "4", "-o", "second.png"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(tenon::read_png(folder() / "second.png").width, 64);
  const json first = json::parse(tenon::read_png_text(folder() / "first.png").at("tenon"));
  const json second = json::parse(tenon::read_png_text(folder() / "second.png").at("tenon"));
  EXPECT_EQ(second.at("strength"), 0.5);
  EXPECT_EQ(second.at("init_sha256"), first.at("pixels_sha256"));
}

TEST_F(CliGenerate, PicturesOfOtherSizesAreBroughtToSize) {
  tenon::write_png(folder() / "odd.png", {100, 60, 3, std::vector<uint8_t>(18000, 200)});
  const auto drawn = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> all{"generate", "-p",      "a circle", "-m", model(), "-i",
                                 "odd.png",  "--steps", "2",        "-o", name};
    all.insert(all.end(), more.begin(), more.end());
    const Finished f = tenon(all);
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_NE(f.err.find("odd.png: 100x60, resized to"), std::string::npos) << f.err;
    json about = json::parse(tenon::read_png_text(folder() / name).at("tenon"));
    EXPECT_EQ(about.at("init_size"), json({100, 60}));
    return about;
  };
  const json down = drawn("down.png", {});  // rounded down to multiples of 8
  EXPECT_EQ(down.at("width"), 96);
  EXPECT_EQ(down.at("height"), 56);
  for (const char* mode : {"stretch", "crop", "fill"}) {
    const json j = drawn(std::string(mode) + ".png", {"-W", "64", "-H", "64", "--resize-mode", mode});
    EXPECT_EQ(j.at("width"), 64);
    EXPECT_EQ(j.at("resize_mode"), mode);
    EXPECT_EQ(j.at("init_sha256"), down.at("init_sha256"));
  }
}

TEST_F(CliGenerate, PictureFromAJpeg) {
  std::filesystem::copy_file(TENON_SOURCE_DIR "/tests/fuzz/corpus/jpeg/turned_6", folder() / "photo.jpg");
  const Finished f = tenon({"generate", "-p", "a circle", "-m", model(), "-i", "photo.jpg", "--steps", "2", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(json::parse(f.out).at("width"), 8);  // stored as 20 x 12, seen as 12 x 20, in multiples of 8
  EXPECT_EQ(json::parse(f.out).at("height"), 16);
}

// A single file holds no tokenizer, and CLIP's vocabulary, which comes with the program, does not fit this model.
TEST_F(CliGenerate, ASingleFileNeedsATokenizerOfItsVocabularyOnly) {
  std::filesystem::copy_file(model() + ".safetensors", folder() / "alone.safetensors");
  expect_error(3, {"generate", "a circle", "-m", "alone.safetensors"}, {"no tokenizer", "vocabulary", "tokenizer/"});
}

TEST_F(CliGenerate, ASingleFileWithClipsVocabularyNeedsNoTokenizer) {
  fixtures::write_single_file(folder() / "clip.safetensors", tenon::DType::F32, true, 49408);
  std::set<std::string> hashes;
  for (const char* prompt : {"a cat", "a dog", "a  Cat"}) {
    const Finished f = tenon({"generate", prompt, "-m", "clip.safetensors", "-W", "64", "-H", "64", "--steps", "2",
                              "--json", "-o", "a.png", "--overwrite"});
    ASSERT_EQ(f.code, 0) << f.err;
    hashes.insert(json::parse(f.out).at("pixels_sha256").get<std::string>());
  }
  EXPECT_EQ(hashes.size(), 2u);
}

TEST_F(CliGenerate, PromptFromAFile) {
  std::ofstream(folder() / "prompt.txt") << "\xef\xbb\xbf"
                                            "a circle\n";
  const Finished f = tenon(
      {"generate", "--prompt-file", "prompt.txt", "-m", model(), "-W", "64", "-H", "64", "--steps", "2", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(json::parse(f.out).at("prompt"), "a circle");
}

// The only step at this size takes many seconds: ending must not wait for it.
TEST_F(CliGenerate, InterruptionBeforeTheFirstStepEnds) {
  Process process({"generate", "a circle", "-m", model(), "-W", "1024", "-H", "1024", "--steps", "1"}, folder());
  ASSERT_TRUE(process.wait_for_log("1024x1024, 1 step of", 60));
  process.signal(SIGINT);
  const Finished f = process.finish();
  EXPECT_EQ(f.code, 130) << f.err;
  EXPECT_EQ(f.err.find("step 1/"), std::string::npos) << f.err;
  EXPECT_TRUE(files().empty());
}

TEST_F(CliGenerate, InterruptionEndsWithinAStepAndLeavesNothing) {
  for (const auto& [number, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    Process process({"generate", "a circle", "-m", model(), "-W", "128", "-H", "128", "--steps", "900"}, folder());
    ASSERT_TRUE(process.wait_for_log("step 2/", 60));
    const auto begin = std::chrono::steady_clock::now();
    process.signal(number);
    const Finished f = process.finish();
    EXPECT_EQ(f.code, code) << f.err;
    EXPECT_LE(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 10);
    EXPECT_TRUE(files().empty());
  }
}

TEST_F(CliGenerate, TwoProcessesAndOneFile) {
  Process a(quick({"-q"}), folder()), b(quick({"-q"}), folder());
  const int first = a.finish().code, second = b.finish().code;
  EXPECT_TRUE((first == 0 && second == 2) || (first == 2 && second == 0)) << first << " and " << second;
  EXPECT_EQ(files(), std::vector<std::string>{"output.png"});
  EXPECT_EQ(tenon::read_png(folder() / "output.png").width, 64);
}

}  // namespace
}  // namespace cli
