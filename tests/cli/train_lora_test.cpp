// Training a LoRA through the command line: its files, their effect in `generate`, errors, and a run that is killed.
#include <signal.h>

#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "tenon/io/image.h"
#include "tenon/io/safetensors.h"
#include "tests/cli/cli.h"
#include "tests/fixtures/z_image_folder.h"

namespace cli {
namespace {
using nlohmann::json;
namespace fs = std::filesystem;

class CliTrainLora : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    fs::create_directory(folder() / "pictures");
    for (const size_t i : {0, 1, 2}) picture(std::to_string(i), 72, 64, i);
  }
  void picture(const std::string& name, int64_t width, int64_t height, size_t i) const {
    std::vector<uint8_t> pixels(static_cast<size_t>(width * height * 3));
    for (size_t k = 0; k < pixels.size(); ++k) pixels[k] = static_cast<uint8_t>(k * (7 + i));
    tenon::write_png(folder() / ("pictures/" + name + ".png"), {width, height, 3, pixels});
    std::ofstream(folder() / ("pictures/" + name + ".txt")) << "a zib on a red background " << i << "\n";
  }
  // Trains on the embedded model, with pictures of 64 pixels.
  static std::vector<std::string> arguments(const std::string& output, std::vector<std::string> more = {}) {
    std::vector<std::string> out{"train", "lora", "--instance_data_dir", "pictures", "-o", output};
    out.insert(out.end(), {"--threads", "1", "--device", "cpu", "--rank", "4", "--resolution", "64"});
    if (std::ranges::find(more, "--lr") == more.end()) out.insert(out.end(), {"--lr", "1e-3"});
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  static std::vector<std::string> words(const std::string& line) {
    std::istringstream text(line);
    return {std::istream_iterator<std::string>(text), {}};
  }
  std::string bytes(const fs::path& path) const {
    std::ifstream file(folder() / path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The i-th class picture of "run", whose name goes on with a hash.
  fs::path known(int i) const {
    for (const fs::path& p : fs::directory_iterator(folder() / "run/class"))
      if (p.filename().string().starts_with(std::to_string(i) + "-") && p.extension() == ".png")
        return fs::relative(p, folder());
    return {};
  }
  std::vector<json> metrics(const std::string& run) const {
    std::vector<json> out;
    std::ifstream file(folder() / run / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      out.push_back(json::parse(line));
      for (const char* key : {"update_seconds", "evaluation_seconds", "sample_seconds"}) out.back().erase(key);
    }
    return out;
  }
};

TEST_F(CliTrainLora, LearnsAndIsReadBack) {
  const Finished f = tenon(arguments(
      "run", words("--max_train_steps 4 --validation-steps 2 --validation-prompt zib --sample-every 4 --sample-steps 2 "
                   "--random-flip --ema 0.9 --train-batch-size 2 --optimizer lion --gradient-accumulation-steps 2 "
                   "--format kohya --json --keep 0 --checkpoint-every 2 --class-prompt star --class_prompt ring -q")));
  ASSERT_EQ(f.code, 0) << f.err;
  std::vector<json> losses, validated, drew;
  for (const json& m : metrics("run"))
    (m.contains("loss") ? losses : m.contains("samples") ? drew : validated).push_back(m);
  EXPECT_EQ(losses.size(), 4U);
  EXPECT_EQ(validated.size(), 3U);
  EXPECT_EQ(validated[0]["count"], 16);  // of fewer pictures
  EXPECT_EQ(drew.size(), 2U);
  EXPECT_NE(validated[0]["validation_loss"], validated[2]["validation_loss"]);
  EXPECT_NE(bytes("run/samples/000000-0.png"), bytes("run/samples/000004-0.png"));
  EXPECT_FALSE(bytes("run/samples/000004-0.png").empty());
  EXPECT_EQ(known(1).extension(), ".png");
  EXPECT_EQ(bytes(known(1).replace_extension(".txt")), "ring");
  EXPECT_FALSE(fs::exists(folder() / "run/samples/now.safetensors"));
  const auto lora = tenon::SafetensorsFile::open(folder() / "run/pytorch_lora_weights.safetensors");
  EXPECT_EQ(lora.tensors().size(), 2U * 128);
  EXPECT_TRUE(lora.contains("unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_out.0.lora_B.weight"));
  const json notes = json::parse(lora.metadata().at("lora_adapter_metadata"));
  EXPECT_EQ(notes["unet.r"], 4);
  EXPECT_EQ(notes["unet.lora_alpha"], 4);

  // It changes the picture; both formats of the file are the same LoRA.
  const auto draw = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> all{"generate", "a zib", "--steps", "2",  "-s", "3",  "-W",
                                 "64",       "-H",    "64",      "-q", "-o", name, "--no-metadata"};
    all.insert(all.end(), more.begin(), more.end());
    const Finished drawn = tenon(all);
    EXPECT_EQ(drawn.code, 0) << drawn.err;
    return bytes(name);
  };
  const std::string plain = draw("plain.png", {}),
                    with = draw("with.png", {"--lora", "run/pytorch_lora_weights.safetensors"});
  EXPECT_NE(plain, with);
  EXPECT_EQ(with, draw("kohya.png", {"--lora", "run/lora_kohya.safetensors"}));
  EXPECT_EQ(plain, draw("none.png", {"--lora", "run/checkpoint-0/pytorch_lora_weights.safetensors"}));

  const Finished page = tenon({"plot", "run"});
  ASSERT_EQ(page.code, 0) << page.err;
  EXPECT_NE(bytes("run/plot.html").find("data:image/png;base64,"), std::string::npos);
}

// A file in another format is never older than the result.
TEST_F(CliTrainLora, AllFormatsAreOfTheSameStep) {
  const auto train = [&](const std::string& more) {
    const Finished f = tenon(arguments("run", words("--sample-every 0 -q --lr 1e-2 " + more)));
    EXPECT_EQ(f.code, 0) << f.err;
    return bytes("run/lora_kohya.safetensors");
  };
  const std::string first = train("--max-train-steps 1 --format kohya"), second = train("--max-train-steps 2");
  EXPECT_NE(first, second);
  EXPECT_EQ(second, train("--max-train-steps 2 --format kohya"));
  EXPECT_FALSE(fs::exists(folder() / "run/lora_comfy.safetensors"));
}

TEST_F(CliTrainLora, KilledAnywhereGoesOnToTheBit) {
  picture("wide", 96, 64, 3);
  const std::vector<std::string> recipe = words(
      "--aspect-buckets --steps 12 --checkpoint-every 1 --validation-steps 5 -q --cache-dir cache --targets to_v");
  const Finished alone = tenon(arguments("alone", recipe));
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_GE(killed(arguments("killed", recipe), folder() / "killed/metrics.jsonl", {3, 7}, alone.seconds / 20), 1);
  const Finished last = tenon(arguments("killed", recipe));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_TRUE(bytes("killed/pytorch_lora_weights.safetensors") == bytes("alone/pytorch_lora_weights.safetensors"));
  EXPECT_EQ(metrics("killed"), metrics("alone"));
  EXPECT_EQ(metrics("alone").size(), 12U + 4);
}

// Too little memory is reported before a picture is drawn or encoded; a sufficient amount gives the same bits, also in
// a resumed run.
TEST_F(CliTrainLora, LessMemoryIsTheSameRun) {
  const auto with = [&](const char* output, const char* steps, const std::string& memory) {
    std::vector<std::string> all = words("-m z-image-shapes -q --steps " + std::string(steps) + " " + memory);
    all.insert(all.end(), {"--class-prompt", "a red circle"});
    return arguments(output, all);
  };
  expect_error(4, with("run", "1", "--max-memory 1"), {"training step", "raise --max-memory to ", "MiB or more"});
  expect_error(2, with("run", "1", "--max-memory 1 --gradient_checkpointing"), {"gradient", "max-memory"});
  for (const auto& [output, steps, memory] : {std::tuple{"alone", "2", "--max-memory 0"},
                                              {"run", "1", "--gradient_checkpointing"},
                                              {"run", "2", "--max-memory 2"}}) {
    const Finished f = tenon(with(output, steps, memory));
    ASSERT_EQ(f.code, 0) << f.err;
  }
  EXPECT_TRUE(bytes("run/pytorch_lora_weights.safetensors") == bytes("alone/pytorch_lora_weights.safetensors"));
}

TEST_F(CliTrainLora, SigtermLeavesACheckpointOfThatStep) {
  const std::vector<std::string> recipe = words("--steps 4000 --checkpoint-every 0 --validation-steps 1");
  Process process(arguments("run", recipe), folder());
  ASSERT_TRUE(process.wait_for_log("step 2/", 60));
  process.signal(SIGTERM);
  const Finished f = process.finish();
  EXPECT_EQ(f.code, 143) << f.err;
  std::string step = std::to_string(metrics("run").back().at("step").get<int>());
  EXPECT_TRUE(fs::exists(folder() / "run" / ("checkpoint-" + step) / "optimizer.safetensors"));
  // The same model in another folder counts as the same, so the run resumes.
  fs::create_directory(folder() / "elsewhere");
  fs::copy(TENON_SOURCE_DIR "/assets/default-model", folder() / "elsewhere/default-model", fs::copy_options::recursive);
  std::vector<std::string> other_folder = recipe;
  other_folder.insert(other_folder.end(), {"-m", "elsewhere/default-model"});
  Process more(arguments("run", other_folder), folder());
  EXPECT_TRUE(more.wait_for_log("step " + std::to_string(std::stoi(step) + 1) + "/", 60));
  more.signal(SIGTERM);
  const Finished gone_on = more.finish();
  EXPECT_EQ(gone_on.code, 143) << gone_on.err;
  step = std::to_string(metrics("run").back().at("step").get<int>());
  // The validation that the first signal came before is done on resuming.
  std::map<int, int> validated;
  for (const json& m : metrics("run")) validated[m.at("step").get<int>()] += m.contains("validation_loss") ? 1 : 0;
  for (const auto& [at, times] : validated) EXPECT_EQ(times, at == std::stoi(step) ? 0 : 1) << at;
  // A changed picture makes it another run.
  fs::remove(folder() / "pictures/1.png");
  fs::remove(folder() / "pictures/1.txt");
  expect_error(2, arguments("run", recipe),
               {"checkpoint-" + step, "other options, pictures or model files", "(pictures: "});
}

// Training over another LoRA starts from its effect, and the result contains nothing of it.
TEST_F(CliTrainLora, OverAnAdapter) {
  const std::vector<std::string> recipe = words("--steps 2 --validation-steps 2 --targets to_v --lr 3e-2 -q");
  const auto over = [&](const std::string& output, const std::string& adapter) {
    std::vector<std::string> all = recipe;
    all.insert(all.end(), {"--adapter", adapter});
    return arguments(output, all);
  };
  ASSERT_EQ(tenon(arguments("first", recipe)).code, 0);
  const std::string adapter = "first/pytorch_lora_weights.safetensors";
  const Finished f = tenon(over("second", adapter));
  ASSERT_EQ(f.code, 0) << f.err;
  const auto loss = [&](const std::string& run, bool last) {
    const std::vector<json> all = metrics(run);
    return (last ? all.back() : all.front()).at("validation_loss").get<double>();
  };
  const double alone = loss("first", false), taught = loss("first", true), merged = loss("second", false);
  EXPECT_GT(std::abs(taught - alone), 1e-3 * alone);
  EXPECT_NEAR(merged, taught, 1e-5 * taught);
  const auto lora = tenon::SafetensorsFile::open(folder() / "second/checkpoint-0/pytorch_lora_weights.safetensors");
  for (const auto& [name, t] : lora.tensors())
    EXPECT_EQ(name.ends_with(".lora_B.weight"),
              std::all_of(t.data, t.data + t.size, [](std::byte b) { return b == std::byte{0}; }))
        << name;
  EXPECT_EQ(lora.tensors().size(), tenon::SafetensorsFile::open(folder() / adapter).tensors().size());
  EXPECT_EQ(tenon(over("second", "first")).code, 0);  // the folder that holds it is the same run
  expect_error(2, over("second", "second/pytorch_lora_weights.safetensors"), {"checkpoint-2", "other options"});
  expect_error(3, over("third", "nowhere.safetensors"), {"nowhere.safetensors"});
  expect_error(3, over("third", "pictures"),
               {"[pictures] is a folder, expected a LoRA file", "no pictures.safetensors"});
  // A LoRA of the text encoder, whose features are computed beforehand.
  const std::string layer = "text_encoder.text_model.encoder.layers.0.self_attn.q_proj.lora_";
  const auto text =
      tenon::SafetensorsFile::open(TENON_SOURCE_DIR "/assets/default-model/text_encoder/model.safetensors");
  const int64_t width = text.at("text_model.encoder.layers.0.self_attn.q_proj.weight").shape[0];
  const std::vector<float> a(static_cast<size_t>(width), 1);
  const std::vector<tenon::TensorData> tensors{
      {layer + "A.weight", tenon::DType::F32, {1, width}, std::as_bytes(std::span(a))},
      {layer + "B.weight", tenon::DType::F32, {width, 1}, std::as_bytes(std::span(a))}};
  tenon::write_safetensors(folder() / "text.safetensors", tensors, {});
  expect_error(2, over("third", "text.safetensors"), {"text.safetensors", "text_encoder", "unet"});
  EXPECT_FALSE(fs::exists(folder() / "third"));
}

TEST_F(CliTrainLora, ErrorsNameTheThing) {
  fs::create_directory(folder() / "none");
  fs::create_directory(folder() / "odd");
  std::ofstream(folder() / "odd/a.png") << "no picture";
  const auto with = [](const std::string& pictures, std::vector<std::string> more = {}) {
    std::vector<std::string> out{"train", "lora", "--instance-data-dir", pictures, "-o", "run"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  expect_error(2, with("nowhere"), {"nowhere", "does not exist"});
  expect_error(2, with("none"), {"none", "holds no pictures"});
  expect_error(2, with("odd", {"--caption", "a"}), {"odd/a.png"});
  expect_error(2, with("pictures/0.png"), {"pictures/0.png", "is a file"});
  expect_error(2, {"train", "lora", "-o", "run", "--caption", "a"}, {"[--caption] needs pictures"});
  fs::create_directory(folder() / "thin");
  tenon::write_png(folder() / "thin/line.png", {1, 3000, 3, std::vector<uint8_t>(9000)});
  const Finished thin = tenon(with("thin", {"--caption", "a", "--no-cache", "--sample-every", "0", "-q"}));
  EXPECT_EQ(thin.code, 2) << thin.err;
  EXPECT_NE(thin.err.find("[thin/line.png] [picture] is 1x3000, too elongated to cover"), std::string::npos)
      << thin.err;
  fs::remove_all(folder() / "run");
  expect_error(2, with("pictures", {"--no-cache", "--cache-dir", "kept"}), {"--no-cache", "--cache-dir"});
  EXPECT_FALSE(fs::exists(folder() / "kept"));
  expect_error(2, with("pictures", {"--rank", "0"}), {"--rank"});
  expect_error(2, with("pictures", {"--rank", "99999"}), {"rank", "65536"});
  expect_error(2, with("pictures", {"--lora-alpha", "0"}), {"lora alpha"});
  expect_error(2, with("pictures", {"--lora-alpha", "1e30"}), {"lora alpha", "at most 1e+09"});
  expect_error(2, with("pictures", {"--targets", "q_proj"}), {"q_proj", "to_q"});
  expect_error(2, with("pictures", {"--resolution", "100"}), {"[--resolution]", "100", "104"});
  expect_error(2, with("pictures", {"--resolution", "32776"}), {"[--resolution]", "32776 is outside 8..32768"});
  expect_error(2, with("pictures", {"--validation-prompt", "star"}), {"[--validation-prompt]", "--sample-every"});
  // Reported before a picture for prior preservation is drawn.
  expect_error(2, with("pictures", {"--targets", "q_proj", "--class-prompt", "star"}), {"q_proj", "to_q"});
  expect_error(2, with("pictures", {"--weighting-scheme", "mode", "--class-prompt", "star"}), {"flow matching"});
  expect_error(2, with("pictures", {"--weight-decay", "-1", "--class-prompt", "star"}), {"weight_decay"});
  expect_error(2, with("pictures", {"--max-grad-norm", "-1", "--class-prompt", "star"}), {"clip"});
  expect_error(3, with("pictures", {"--adapter", "odd/a.png", "--class-prompt", "star"}), {"odd/a.png"});
  expect_error(2, with("pictures", {"--cache-dir", "odd/a.png", "--class-prompt", "star"}),
               {"[odd/a.png]", "a folder"});
  for (const char* flag : {"--caption", "--class-prompt", "--validation-prompt"})
    expect_error(2, with("pictures", {flag, "a\xff", "--sample-every", "1"}), {flag, "is not UTF-8: byte 1"});
  expect_error(2, with("pictures", {"-s", "-1"}), {"--seed", "at least 0"});
  expect_error(2, with("pictures", {"--gradient-accumulation-steps", "1099511627776"}), {"1048576 pictures"});
  expect_error(2, with("pictures", {"--train-batch-size", "1099511627776"}), {"1048576 pictures"});
  expect_error(2, with("pictures", {"--weighting-scheme", "mode"}), {"mode", "flow matching"});
  expect_error(2, with("pictures", {"--flow-shift", "3"}), {"shift"});
  expect_error(2, with("pictures", {"--sample-every", "5"}), {"--validation-prompt"});
  expect_error(2, with("pictures", {"--format", "peft"}), {"peft", "kohya"});
  expect_error(2, with("pictures", {"--ema", "1"}), {"ema"});
  expect_error(3, with("pictures", {"-m", "elsewhere"}), {"elsewhere"});
  expect_error(3, with("pictures", {"-m", "random:vit-s14"}), {"learn from pictures"});
  expect_error(2, {"train", "lora", "--instnce-data-dir", "x"}, {"--instnce-data-dir", "did you mean"});
  expect_error(2, {"train"}, {"grpo", "lora"});
  fs::remove(folder() / "pictures/0.txt");
  expect_error(2, with("pictures"), {"pictures/0.png", "has no caption", "--caption"});
  fs::remove(folder() / "pictures/0.png");
  std::ofstream(folder() / "pictures/0.txt") << "alone";
  expect_error(2, with("pictures"), {"pictures/0.txt", "without a picture"});
}

TEST_F(CliTrainLora, StrayWordsAreNoPrompts) {
  for (const char* flag : {"--class-prompt", "--validation-prompt"})
    expect_error(2, arguments("run", {flag, "star", "stray"}), {"stray"});
}

TEST_F(CliTrainLora, AnEmptyCaptionIsAnError) {
  std::ofstream(folder() / "pictures/0.txt", std::ios::trunc) << " \n";
  expect_error(2, arguments("run"), {"pictures/0.png", "0.txt beside it is empty", "--caption"});
}

TEST_F(CliTrainLora, SubfoldersAreNamed) {
  std::ofstream(folder() / "pictures/a.png") << "no picture";
  for (const char* name : {"pictures/.trash", "pictures/10_zib"}) fs::create_directory(folder() / name);
  const Finished f = tenon(arguments("run"));
  EXPECT_EQ(f.code, 2) << f.err;
  EXPECT_NE(f.err.find("pictures/10_zib is a folder; pictures in it are not read"), std::string::npos) << f.err;
  EXPECT_EQ(f.err.find(".trash"), std::string::npos) << f.err;
}

// Said before pictures are drawn.
TEST_F(CliTrainLora, FilesInTheWay) {
  fs::create_directory(folder() / "used");
  std::ofstream(folder() / "used/lora_kohya.safetensors") << "someone's";
  expect_error(2, arguments("used", {"--class-prompt", "star"}), {"[used/lora_kohya.safetensors] is there already"});
  EXPECT_FALSE(fs::exists(folder() / "used/class"));
  fs::create_directory(folder() / "taken");
  std::ofstream(folder() / "taken/class") << "none";
  expect_error(2, arguments("taken", {"--class-prompt", "star"}), {"[taken/class] cannot be created as a folder"});
}

TEST_F(CliTrainLora, ClassPicturesAreOfThisRunAlone) {
  const std::vector<std::string> one{"--steps", "1", "--targets", "to_v", "--class-prompt", "star"};
  std::vector<std::string> three = one;
  three.insert(three.end(), {"--class-prompt", "ring", "--class-prompt", "box"});
  const Finished first = tenon(arguments("run", three));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("6 pictures of 1 size, "), std::string::npos) << first.err;
  // A run that ended before its first checkpoint leaves pictures that the next one did not ask for.
  for (const char* name : {"run/checkpoint-0", "run/checkpoint-1", "run/pytorch_lora_weights.safetensors"})
    fs::remove_all(folder() / name);
  fs::remove(folder() / known(2).replace_extension(".txt"));
  const Finished second = tenon(arguments("run", one));
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.err.find("drawing "), std::string::npos) << second.err;
  EXPECT_NE(second.err.find("4 pictures of 1 size, "), std::string::npos) << second.err;
  // A command with another seed is refused, and neither uses these pictures nor changes them.
  const std::string star = bytes(known(0));
  std::vector<std::string> other = one;
  other.insert(other.end(), {"-s", "7"});
  const Finished refused = tenon(arguments("run", other));
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_NE(refused.err.find("drawing 1 picture "), std::string::npos) << refused.err;
  EXPECT_EQ(std::ranges::count_if(fs::directory_iterator(folder() / "run/class"),
                                  [&](const fs::path& p) { return p.extension() == ".png" && bytes(p) == star; }),
            1);
  const Finished again = tenon(arguments("run", one));
  EXPECT_EQ(again.code, 0) << again.err;
  fs::rename(folder() / "run", folder() / "r\x1b[31m");
  const Finished named = tenon(arguments("r\x1b[31m", one));
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(named.out, "r\\x1b[31m\n");
  // Does not draw into another run's folder.
  Process running(arguments("busy", {"--steps", "4000"}), folder());
  ASSERT_TRUE(running.wait_for_log("step 1/", 60));
  const Finished beside = tenon(arguments("busy", one));
  EXPECT_EQ(beside.code, 2);
  EXPECT_NE(beside.err.find("another run is writing"), std::string::npos) << beside.err;
  EXPECT_FALSE(fs::exists(folder() / "busy/class"));
  running.signal(SIGKILL);
  running.finish();
  std::ofstream(folder() / "file") << "none";
  const Finished over = tenon(arguments("file", one));
  EXPECT_EQ(over.code, 2);
  EXPECT_NE(over.err.find("[file] cannot be created as a folder"), std::string::npos) << over.err;
}

TEST_F(CliTrainLora, FlagsWithoutEffectAreSaid) {
  const auto said = [&](const std::string& more) {  // before the targets are refused
    const Finished f =
        tenon(arguments("run", words("-m z-image-shapes --targets none --sample-steps 2 --logit-mean 1 " + more)));
    EXPECT_NE(f.err.find("error: [targets]"), std::string::npos) << f.err;
    return f.err;
  };
  const std::string idle = said("--validation-data-dir pictures --mode-scale 1"),
                    used = said("--weighting-scheme logit_normal --sample-every 2 --validation-prompt x");
  for (const char* flag : {"--validation-data-dir", "--sample-steps", "--logit-mean", "--mode-scale"}) {
    EXPECT_NE(idle.find(flag + std::string(" has no effect")), std::string::npos) << idle;
    EXPECT_EQ(used.find(flag + std::string(" has no effect")), std::string::npos) << used;
  }
}

// A learning rate that diverges: the error names the step, and the checkpoints before it stay.
TEST_F(CliTrainLora, WhatIsNoNumberEndsTheRun) {
  const Finished f = tenon(arguments("run", {"--lr", "1e38", "--max-grad-norm", "0", "--steps", "20", "-q"}));
  EXPECT_EQ(f.code, 5) << f.err;
  EXPECT_NE(f.err.find("[step "), std::string::npos) << f.err;
  EXPECT_TRUE(fs::exists(folder() / "run/checkpoint-0/pytorch_lora_weights.safetensors"));
  EXPECT_FALSE(fs::exists(folder() / "run/pytorch_lora_weights.safetensors"));
}

TEST_F(CliTrainLora, ZImage) {
  fixtures::write_z_image(folder() / "model");
  const Finished f = tenon(arguments("run", {"-m", "model", "--steps", "3", "--weighting-scheme", "logit_normal",
                                             "--type", "bf16", "--format", "comfy", "--max-memory", "64", "-q"}));
  ASSERT_EQ(f.code, 0) << f.err;
  const auto lora = tenon::SafetensorsFile::open(folder() / "run/lora_comfy.safetensors");
  EXPECT_TRUE(lora.contains("diffusion_model.layers.0.attention.to_q.lora_A.weight"));
  const auto draw = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> all{"generate", "a zib", "-m", "model", "--steps", "2",  "-s", "3",
                                 "-W",       "64",    "-H", "64",    "-q",      "-o", name, "--no-metadata"};
    all.insert(all.end(), more.begin(), more.end());
    const Finished drawn = tenon(all);
    EXPECT_EQ(drawn.code, 0) << drawn.err;
    return bytes(name);
  };
  const std::string with = draw("with.png", {"--lora", "run/pytorch_lora_weights.safetensors"});
  EXPECT_NE(with, draw("plain.png", {}));
  EXPECT_EQ(with, draw("comfy.png", {"--lora", "run/lora_comfy.safetensors"}));
}

}  // namespace
}  // namespace cli
