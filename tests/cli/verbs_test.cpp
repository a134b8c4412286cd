// The verbs for inspection: their JSON forms, which scripts rely on, and their pages.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "tests/cli/cli.h"

namespace cli {
namespace {
using nlohmann::json;

class CliVerbs : public CliTest {
 protected:
  json json_of(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Finished f = tenon(std::move(arguments));
    EXPECT_EQ(f.code, 0) << f.err;
    return f.code ? json::object() : json::parse(f.out);
  }
  std::vector<std::string> with(std::vector<std::string> arguments) const {
    for (const std::string& a :
         {std::string("-m"), model(), std::string("-W"), std::string("64"), std::string("-H"), std::string("64")})
      arguments.push_back(a);
    return arguments;
  }
};

void expect_keys(const json& j, std::initializer_list<const char*> keys) {
  for (const char* key : keys) EXPECT_TRUE(j.contains(key)) << key;
}

TEST_F(CliVerbs, HelpAndVersion) {
  const Finished help = tenon({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* verb : {"generate", "explain", "inspect", "verify", "bench", "env"})
    EXPECT_NE(help.out.find(verb), std::string::npos);
  EXPECT_TRUE(tenon({"--version"}).out.starts_with("tenon "));
  EXPECT_EQ(tenon({"generate", "-h"}).code, 0);
  EXPECT_NE(help.out.find("129 hung up, 130 interrupted"), std::string::npos) << help.out;
  EXPECT_NE(tenon({"--list-devices"}).out.find("cpu"), std::string::npos);
  const json devices = json_of({"--list-devices"});
  ASSERT_FALSE(devices.empty());
  expect_keys(devices[0], {"number", "name", "description"});
}

TEST_F(CliVerbs, Explain) {
  const json j = json_of(with({"explain"}));
  expect_keys(j, {"launches", "counts", "bytes", "peak_bytes"});
  expect_keys(j["counts"], {"total", "kernels", "elementwise", "concat", "permute", "upsample"});
  expect_keys(j["bytes"], {"fused", "unfused"});
  ASSERT_FALSE(j["launches"].empty());
  for (const json& launch : j["launches"]) expect_keys(launch, {"name", "skeleton", "holes", "bytes", "why_apart"});
  EXPECT_EQ(j["counts"]["total"], j["launches"].size());
  EXPECT_EQ(j["counts"]["kernels"], j["launches"].size());
  for (const char* kind : {"elementwise", "concat", "permute", "upsample"}) EXPECT_EQ(j["counts"][kind], 0) << kind;
  EXPECT_LT(j["bytes"]["fused"], j["bytes"]["unfused"]);
}

TEST_F(CliVerbs, ExplainedMemoryAddsUp) {
  const json all = json_of({"explain", "-m", "sums", "--part", "all"});
  EXPECT_EQ(all["parts"].size(), 4);
  for (const json& part : all["parts"]) {
    int64_t sum = 0;
    for (const json& bytes : part["memory"]) sum += bytes.get<int64_t>();
    EXPECT_EQ(part["peak_bytes"], sum) << part["part"];
  }
  EXPECT_NE(tenon({"explain", "-m", "sums"}).out.find(", states "), std::string::npos) << "the cache";
}

TEST_F(CliVerbs, ExplainAsTextAndPage) {
  const Finished text = tenon(with({"explain"}));
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"silu(", "acc + bias", "fused into #", "read by #", "refused: ", "unfused", "memory:"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  ASSERT_EQ(tenon(with({"explain", "--part", "all", "--time", "--html", "page.html"})).code, 0);
  std::ifstream in(folder() / "page.html");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  EXPECT_NE(page.find("conv_in"), std::string::npos);
  EXPECT_EQ(page.find("/1e9)} GFLOP"), std::string::npos) << "0.00 GFLOP of a small network";
  for (const char* outside : {"src=", "href=", "@import", "https://"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_EQ(tenon(with({"explain", "--html", "page.html"})).code, 2);
  EXPECT_FALSE(json_of(with({"explain", "--html", "page.html", "--overwrite"}))["launches"].empty());
}

TEST_F(CliVerbs, ExplainSumsUpInUnitsThatFit) {
  const Finished text = tenon({"explain", "-m", "random:tiny", "--part", "text"});
  EXPECT_NE(text.out.find(" MFLOP\n"), std::string::npos) << text.out.substr(text.out.rfind("one "));
  EXPECT_EQ(text.out.find(" 0 GFLOP"), std::string::npos);
}

// A cache counts as far as a launch writes it, in every way.
TEST_F(CliVerbs, ComparesABlockOverACache) {
  const json ways = json_of({"explain", "-m", "random:qwen2.5-0.5b", "--compare"})["ways"];
  EXPECT_LT(ways[2]["bytes"], ways[1]["bytes"]);
  EXPECT_LT(ways[1]["bytes"], ways[0]["bytes"]);
  EXPECT_EQ(ways[2]["launches"][1]["maths"].get<std::string>().find("[attention]"), std::string::npos);
  EXPECT_LT(ways[2]["launches"][1]["bytes"], 4096) << "keys and values of one token";
}

// Launches that only repeat or move values have a name in it too.
TEST_F(CliVerbs, CompareNamesEveryLaunchsMaths) {
  const json j = json_of({"explain", "--compare"});
  for (const json& way : j["ways"])
    for (const json& launch : way["launches"]) EXPECT_NE(launch["maths"], "") << launch;
}

TEST_F(CliVerbs, ExplainUnfused) {
  const json fused = json_of(with({"explain"})), unfused = json_of(with({"explain", "--no-fusion"}));
  EXPECT_GT(unfused["counts"]["total"], fused["counts"]["total"]);
  EXPECT_GT(unfused["bytes"]["fused"], fused["bytes"]["fused"]);
  for (const json& j : {fused, unfused}) EXPECT_EQ(j["bytes"]["unfused"], unfused["bytes"]["fused"]);
  for (const json& launch : unfused["launches"]) EXPECT_EQ(launch["bytes"], launch["unfused_bytes"]) << launch["name"];
}

TEST_F(CliVerbs, ExplainTimesEveryLaunch) {
  const json j = json_of(with({"explain", "--part", "text", "--time"}));
  ASSERT_FALSE(j["launches"].empty());
  for (const json& launch : j["launches"]) {
    EXPECT_GT(launch["ms"], 0) << launch["name"];
    EXPECT_NE(launch["how"], "") << launch["name"];
    EXPECT_GT(launch["gb_per_s"], 0) << launch["name"];
    EXPECT_GT(launch["roofline_share"], 0) << launch["name"];
    if (launch["flops"] > 0) {
      const double bytes = launch["bytes"], flops = launch["flops"];
      EXPECT_NEAR(launch["flop_per_byte"], flops / bytes, 1e-6 * flops / bytes);
    }
  }
  EXPECT_GT(j["roofline"]["copy_gb_per_s"], 0);
  EXPECT_GT(j["roofline"]["read_gb_per_s"], 0);
  EXPECT_FALSE(j["roofline"]["product_gflop_per_s"].empty());
  for (const auto& [type, rate] : j["roofline"]["product_gflop_per_s"].items()) EXPECT_GT(rate, 0) << type;
  const json sorted = json_of(with({"explain", "--part", "text", "--time", "--sort", "time"}));
  for (size_t i = 1; i < sorted["launches"].size(); ++i)
    EXPECT_GE(sorted["launches"][i - 1]["ms"], sorted["launches"][i]["ms"]);
}

// Every reader that was kept apart says where it is computed; refusals are about maths that a tile cannot do.
TEST_F(CliVerbs, ProfileAddsUpToTheStep) {
  const Finished f = tenon(with({"profile", "--part", "unet", "--runs", "3", "--trace", "step.json", "--json"}));
  ASSERT_EQ(f.code, 0) << f.err;
  const auto found = nlohmann::json::parse(f.out);
  const double step = found["ms"];
  EXPECT_GT(step, 0);
  for (const char* list : {"classes", "layers"}) {
    double sum = 0;
    for (const auto& one : found[list]) sum += one["ms"].get<double>();
    EXPECT_NEAR(sum, step, 1e-6 * step) << list;
  }
  const auto timeline = nlohmann::json::parse(std::ifstream(folder() / "step.json"));
  size_t launches = 0;
  for (const auto& event : timeline["traceEvents"]) launches += event["ph"] == "X";
  EXPECT_EQ(launches, found["times"].size());
  expect_error(2, with({"profile", "--trace", "step.json"}), {"step.json", "--overwrite"});
  expect_error(2, with({"profile", "--runs", "0"}), {"--runs"});
  const Finished text = tenon(with({"profile", "--part", "all", "--runs", "1", "--top", "2"}));
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"class", "convolution", "roofline", "vae-decode", ".. "})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  const Finished none = tenon(with({"profile", "--runs", "1", "--top", "0"}));
  EXPECT_NE(none.out.find("class"), std::string::npos) << none.out;
  for (const char* table : {"\nlayer", "\nlaunch"}) EXPECT_EQ(none.out.find(table), std::string::npos) << none.out;
}

TEST_F(CliVerbs, ExplainSaysWhereReadersWent) {
  const json j = json_of({"explain", "-m", "random:sd15"});
  std::set<std::string> names, anchors;
  for (const char* list : {"launches", "hoisted"})
    for (const json& launch : j[list]) {
      names.insert(launch["name"].get<std::string>());
      if (launch["anchor"] != "") anchors.insert(launch["name"].get<std::string>());
    }
  std::map<std::string, int> kinds;
  for (const json& launch : j["launches"]) {
    ASSERT_EQ(launch["apart"].size(), launch["why_apart"].size());
    for (const json& a : launch["apart"]) {
      ++kinds[a["kind"]];
      ASSERT_FALSE(a["into"].empty()) << a;
      bool fused = false;
      for (const json& place : a["into"]) {
        EXPECT_TRUE(names.contains(place["launch"])) << place;
        fused = fused || anchors.contains(place["launch"]);
      }
      EXPECT_TRUE(fused) << a;
      const bool reduces =
          a["why"].get<std::string>().find("more of the result than a tile holds") != std::string::npos;
      EXPECT_EQ(reduces, a["kind"] == "refused") << a;
    }
  }
  EXPECT_GT(kinds["fused"], 100);
  EXPECT_GT(kinds["anchor"], 50);
  EXPECT_GT(kinds["refused"], 20);
}

TEST_F(CliVerbs, ExplainShowsSomeLaunches) {
  const json all = json_of(with({"explain"}));
  const json some = json_of(with({"explain", "--only", "attn1"})),
             pattern = json_of(with({"explain", "--only", "*.conv?"}));
  ASSERT_FALSE(some["launches"].empty());
  EXPECT_LT(some["launches"].size(), all["launches"].size());
  EXPECT_EQ(some["counts"], all["counts"]);
  EXPECT_EQ(some["bytes"], all["bytes"]);
  for (const json& launch : some["launches"]) {
    const std::string name = launch["name"];
    EXPECT_NE(name.find("attn1"), std::string::npos) << name;
    EXPECT_EQ(all["launches"][launch["number"].get<size_t>() - all["hoisted"].size()]["name"], name);
  }
  for (const json& launch : pattern["launches"]) {
    const std::string name = launch["name"];
    EXPECT_TRUE(name.ends_with(".conv1") || name.ends_with(".conv2")) << name;
  }
  const json sorted = json_of(with({"explain", "--sort", "bytes"}));
  ASSERT_EQ(sorted["launches"].size(), all["launches"].size());
  for (size_t i = 1; i < sorted["launches"].size(); ++i)
    EXPECT_GE(sorted["launches"][i - 1]["bytes"], sorted["launches"][i]["bytes"]);
  expect_error(2, with({"explain", "--only", "lungs"}), {"--only", "lungs"});
  // Sorted, launches of other phases stand between those of a step, and say so.
  const std::string text = tenon(with({"explain", "--sort", "bytes"})).out;
  EXPECT_EQ(text.find("\nphase step\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nphase schedule: #"), std::string::npos) << text;
  expect_error(2, with({"explain", "--sort", "time"}), {"--sort", "--time"});
  expect_error(2, with({"explain", "--sort", "size"}), {"size", "time, bytes"});
}

TEST_F(CliVerbs, ExplainNeedsNoWeights) {
  EXPECT_LE(json_of({"explain", "-m", "random:sd15"})["counts"]["total"], 300);
}

TEST_F(CliVerbs, Inspect) {
  const json j = json_of({"inspect", model()});
  expect_keys(j, {"model", "kind", "architecture", "components", "unexpected", "usable"});
  EXPECT_EQ(j["usable"], true);
  for (const char* part : {"text_encoder", "unet", "vae"}) {
    ASSERT_TRUE(j["components"].contains(part)) << part;
    expect_keys(j["components"][part],
                {"parameters", "dtypes", "tensors", "missing", "unexpected", "wrong_shape", "files"});
  }
  EXPECT_NE(tenon({"inspect", "random:sd15"}).out.find("859520964"), std::string::npos);
}

TEST_F(CliVerbs, InspectTakesOneModel) {
  expect_error(2, {"inspect", model(), "-m", model()}, {"-m: is given in more than one way: use MODEL or -m"});
  expect_error(2, {"inspect", "-m", model(), "-m", model()}, {"-m: given more than once"});
}

TEST_F(CliVerbs, InspectShowsNoLessThanNoNames) { expect_error(2, {"inspect", model(), "--names", "-1"}, {"--names"}); }

TEST_F(CliVerbs, InspectOfAnIncompleteModelIsThree) {
  namespace fs = std::filesystem;
  fs::copy(model(), folder() / "half", fs::copy_options::recursive);
  fs::remove_all(folder() / "half/unet");
  fs::copy(folder() / "half/vae", folder() / "half/unet");
  EXPECT_EQ(tenon({"inspect", "half"}).code, 3);
  fs::copy(model(), folder() / "blind", fs::copy_options::recursive);
  fs::remove_all(folder() / "blind/vae");
  const Finished blind = tenon({"inspect", "blind"});
  EXPECT_EQ(blind.code, 3);
  EXPECT_NE(blind.out.find("not usable"), std::string::npos) << blind.out;
  EXPECT_EQ(tenon({"inspect", model() + "/unet"}).code, 0);  // one network, which is complete in itself
}

// Whatever drawing would refuse, inspect refuses for the same reason.
TEST_F(CliVerbs, InspectOpensWhatDrawingOpens) {
  namespace fs = std::filesystem;
  const auto expect_refused = [&](const std::string& file, const std::string& text, const std::string& reason) {
    const fs::path copy = folder() / "broken";
    fs::remove_all(copy);
    fs::copy(model(), copy, fs::copy_options::recursive);
    std::ofstream(copy / file) << text;
    const Finished f = tenon({"inspect", "broken"}), drawn = tenon({"generate", "a", "-m", "broken", "-o", "new.png"});
    EXPECT_EQ(f.code, 3) << file << "\n" << f.out;
    EXPECT_NE(f.out.find("not usable"), std::string::npos) << f.out;
    const size_t at = f.out.find("problem: ");
    ASSERT_NE(at, std::string::npos) << f.out;
    const std::string problem = f.out.substr(at + 9, f.out.find('\n', at) - at - 9);
    EXPECT_NE(problem.find(reason), std::string::npos) << problem;
    EXPECT_EQ(drawn.code, 3) << drawn.err;
    EXPECT_NE(drawn.err.find(problem), std::string::npos) << problem << "\n" << drawn.err;
  };
  const std::string scheduler = "scheduler/scheduler_config.json", index = "model_index.json";
  expect_refused(scheduler, R"({"_class_name": "DDIMScheduler", "beta_start": -1})", "beta_start");
  expect_refused(scheduler, R"({"_class_name": "DDIMScheduler", "num_train_timesteps": 0})", "num_train_timesteps");
  expect_refused(scheduler, R"({"_class_name": "DDIMScheduler", "num_train_timesteps": 10})", "default of 20 steps");
  expect_refused(scheduler, R"({"_class_name": "DDIMScheduler", "prediction_type": "foo"})", "prediction_type");
  expect_refused(scheduler, R"({"_class_name": "FooScheduler"})", "FooScheduler");
  for (const char* bad : {R"("steps": -1)", R"("width": "x")", R"("sampler": "foo")"})
    expect_refused(index, std::string(R"({"_tenon_defaults": {)") + bad + "}}", "_tenon_defaults");
  expect_refused("tokenizer/vocab.json", "{", "vocab.json");
}

TEST_F(CliVerbs, WeightsThatAreNotFloatingPointAreNamedAtOnce) {
  namespace fs = std::filesystem;
  // Of another type of the same size: the file stays well formed.
  const auto spoil = [&](const fs::path& copy, const std::string& component) {
    fs::copy(model(), folder() / copy, fs::copy_options::recursive);
    const fs::path file = folder() / copy / component / "diffusion_pytorch_model.safetensors";
    std::ifstream in(file, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    const size_t at = bytes.find("F32", bytes.find("conv_in.bias\""));
    ASSERT_NE(at, std::string::npos);
    std::ofstream(file, std::ios::binary) << bytes.replace(at, 3, "I32");
  };
  const std::string wrong = "conv_in.bias' is of type i32, expected floating point\n";
  spoil("whole", "unet");
  for (const char* path : {"whole", "whole/unet"}) {
    const Finished f = tenon({"inspect", path});
    EXPECT_EQ(f.code, 3) << f.out;
    EXPECT_NE(f.out.find(wrong + "not usable"), std::string::npos) << f.out;
  }
  spoil("last", "vae");
  const Finished f = tenon({"generate", "-m", "last", "-p", "a red circle"});
  EXPECT_EQ(f.code, 3) << f.err;
  EXPECT_NE(f.err.find(wrong), std::string::npos) << f.err;
  EXPECT_EQ(f.err.find("step"), std::string::npos) << f.err;
}

TEST_F(CliVerbs, Verify) {
  const json j = json_of(with({"verify", "--part", "text", "--no-parity"}));
  expect_keys(j, {"passed", "failed", "skipped", "cases"});
  EXPECT_EQ(j["failed"], 0);
  EXPECT_GT(j["passed"], 0);
}

TEST_F(CliVerbs, VerifySkipsOnlyWhatIsNotThere) {
  const json j = json_of(with({"verify", "--part", "text"}));
  EXPECT_EQ(j["failed"], 0);
  EXPECT_EQ(j["skipped"], 0);
  bool parity = false;
  for (const json& c : j["cases"]) parity = parity || c["name"].get<std::string>().starts_with("parity ");
  EXPECT_TRUE(parity);
}

// Recordings that differ from the networks' results, or are invalid.
class CliVerifyRecordings : public CliVerbs {
 protected:
  void SetUp() override {
    CliVerbs::SetUp();
    for (const char* name : {"parity.json", "parity.safetensors"})
      std::filesystem::copy(std::string(TENON_SOURCE_DIR "/tests/fixtures/") + name, folder());
    std::ifstream(folder() / "parity.json") >> recorded_;
    json kept = json::array();
    for (const json& c : recorded_["cases"])
      if (c["name"] == kCase) kept.push_back(c);
    recorded_["cases"] = kept;
  }
  Finished verify() const {
    std::ofstream(folder() / "parity.json") << recorded_;
    return tenon(with({"verify", "--part", "text", "--fixtures", ".", "--json", "-q"}));
  }
  // The report's entry for the recorded case.
  json verdict(int code) const {
    const Finished f = verify();
    EXPECT_EQ(f.code, code) << f.err;
    const json report = json::parse(f.out);
    for (const json& c : report["cases"])
      if (c["name"].get<std::string>().starts_with("parity")) return c;
    return json::object();
  }
  // Rewrites the file's header with `change`, and its data.
  void rewrite(const std::function<void(json& header, std::string& data)>& change) const {
    std::ifstream in(folder() / "parity.safetensors", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    in.close();
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    json header = json::parse(bytes.substr(8, length));
    std::string data = bytes.substr(8 + length);
    change(header, data);
    const std::string text = header.dump();
    length = text.size();
    bytes.assign(reinterpret_cast<const char*>(&length), sizeof length);
    std::ofstream(folder() / "parity.safetensors", std::ios::binary) << bytes << text << data;
  }

  static constexpr const char* kCase = "unet-9x7-b2";
  json recorded_;
};

TEST_F(CliVerifyRecordings, ShapesAreCompared) {
  EXPECT_EQ(verdict(0)["result"], "passed");
  recorded_["cases"][0]["expect"]["out"]["shape"] = {2, 4, 7, 9};
  EXPECT_NE(verdict(5)["note"].get<std::string>().find("shape [2,4,9,7], expected [2,4,7,9]"), std::string::npos);
  recorded_["cases"][0]["expect"]["out"]["shape"] = {2, 4, 9, 7};
  rewrite([](json& header, std::string&) { header[std::string(kCase) + "/out"]["shape"] = {4, 126}; });
  EXPECT_NE(verdict(5)["note"].get<std::string>().find("shape [504], expected [4,126]"), std::string::npos);
}

TEST_F(CliVerifyRecordings, OneNaNIsOneDifference) {
  rewrite([](json& header, std::string& data) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto end = header[std::string(kCase) + "/out"]["data_offsets"][1].get<size_t>();
    std::memcpy(data.data() + end - sizeof nan, &nan, sizeof nan);
  });
  EXPECT_NE(verdict(5)["note"].get<std::string>().find("1 of 504 differ, the first at 503: "), std::string::npos);
}

TEST_F(CliVerifyRecordings, NoCaseIsSaid) {
  recorded_["cases"] = json::array();
  const json entry = verdict(0);
  EXPECT_EQ(entry["result"], "skipped");
  EXPECT_EQ(entry["note"], "./parity.json has no case for a single network");
}

TEST_F(CliVerifyRecordings, WhatIsMissingIsNamed) {
  const json whole = recorded_;
  const auto expect = [&](const std::string& says) {
    const Finished f = verify();
    EXPECT_EQ(f.code, 3);
    EXPECT_EQ(f.err, "tenon: error: [./parity.json] " + says + "\n");
    recorded_ = whole;
  };
  recorded_["cases"][0]["expect"] = json::object();
  expect("case 'unet-9x7-b2': key 'out' not found");
  recorded_["cases"][0].erase("name");
  expect("a case: key 'name' not found");
  recorded_.erase("models");
  expect("key 'models' not found");
}

// The time embedding takes sines of large numbers, whose rounding is not the launch's fault. In sums that cancel, and
// with few operands much larger than the rest, rounding causes more than a relative error of the result.
TEST_F(CliVerbs, VerifyKnowsWhatRoundingDoes) {
  const json shapes = json_of(
      {"verify", "-m", "z-image-shapes", "--part", "vae-decode", "--only", "decoder.up_blocks.3.resnets.*.conv1"});
  EXPECT_EQ(shapes["passed"], 3);  // none of the recorded results
  const Finished none = tenon({"verify", "-m", "z-image-shapes", "--part", "unet"});
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.out, "") << "before any case runs";
  EXPECT_EQ(shapes["failed"], 0) << shapes;
  const json unfused =
      json_of({"verify", "--part", "vae-encode", "--no-parity", "--no-fusion", "-W", "64", "-H", "64"});
  EXPECT_GT(unfused["passed"], 100);
  EXPECT_EQ(unfused["failed"], 0);
}

TEST_F(CliVerbs, VerifyInF32) {
  EXPECT_EQ(json_of({"verify", "--part", "unet", "--no-parity", "--type", "f32"})["failed"], 0);
  EXPECT_EQ(json_of({"verify", "-m", "random:tiny", "--part", "unet", "--no-parity", "--type", "f32"})["failed"], 0);
}

TEST_F(CliVerbs, Bench) {
  const json j = json_of(with({"bench", "--part", "text", "--runs", "1"}));
  expect_keys(j, {"name", "median_ms", "min_ms", "runs", "anchor_sum_ms", "unfused_ms", "launches", "peers", "threads",
                  "device", "dtype", "machine", "date", "commit"});
  EXPECT_GT(j["anchor_sum_ms"], 0);
  EXPECT_GT(j["unfused_ms"], 0);
  const json explained = json_of(with({"explain", "--part", "text"}));
  EXPECT_EQ(j["bytes"], explained["bytes"]["fused"]);
  EXPECT_EQ(j["unfused_bytes"], explained["bytes"]["unfused"]);
  EXPECT_GE(j["threads"], 1);
}

TEST_F(CliVerbs, Environment) {
  const json j = json_of({"env"});
  EXPECT_GE(j["threads"], 1);
  expect_keys(j, {"version", "commit", "compiler", "machine", "devices", "options", "default_model", "cache_folder"});
  expect_keys(j["options"], {"TENON_MODEL_DIR", "TENON_CACHE_DIR", "TENON_NO_FUSION", "NO_COLOR"});
  EXPECT_EQ(tenon({"env"}, {"TENON_CACHE_DIR=/somewhere"}).out.find("/somewhere") == std::string::npos, false);
}

// Without HOME the password database says where the cache is; without that either, there is none. Never here.
TEST_F(CliVerbs, TheCacheIsNeverInTheWorkingFolder) {
  for (const char* home : {"", "relative"}) {
    const Finished run = tenon({"env", "--json"}, {std::string("HOME=") + home, "XDG_CACHE_HOME=", "TENON_CACHE_DIR="});
    const std::string cache = json::parse(run.out)["cache_folder"];
    EXPECT_TRUE(cache.empty() || cache.starts_with("/")) << cache;
  }
}

// Each requirement of a GPU is listed; a missing one comes with the command that installs it.
TEST_F(CliVerbs, EnvironmentOfAGpu) {
  const json j = json_of({"env"});
  const auto cuda =
      std::find_if(j["devices"].begin(), j["devices"].end(), [](const json& d) { return d["name"] == "cuda"; });
  ASSERT_NE(cuda, j["devices"].end());
  EXPECT_NE(cuda->contains("unavailable"), cuda->contains("description"));
  expect_keys((*cuda)["needs"], {"driver", "nvrtc", "cublaslt", "cudnn", "cupti", "kernels"});
  for (const auto& [name, need] : (*cuda)["needs"].items()) {
    const std::string found = need["found"];
    EXPECT_EQ(found.starts_with("not found"), need.contains("install")) << name << ": " << found;
  }
}

}  // namespace
}  // namespace cli
