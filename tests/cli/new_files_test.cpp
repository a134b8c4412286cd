// What docs/adding.md promises of its table's files: each does all that is said of its kind, and no other file knows of
// it. (A family's is in families_test.cpp; tools/check_adding.py finds out whether the build picks them up.)
#include <fstream>

#include "tenon/io/image.h"
#include "tests/cli/cli.h"

namespace cli {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

class CliNewFiles : public CliTest {
 protected:
  // The output of the program with these files; it must succeed.
  std::string out_of(const std::vector<std::string>& arguments, const std::vector<std::string>& files) const {
    const Finished f = tenon(arguments, with_new_files(files));
    EXPECT_EQ(f.code, 0) << f.err;
    return f.out;
  }
  Finished with_verb(const std::vector<std::string>& arguments) const {
    return Process(arguments, folder(), {}, {}, kProgramWithNewVerb).finish();
  }
  // What the texts of a picture drawn with the new sampler's file loaded say about it.
  json drawn(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"generate", "a red circle", "-W", "64", "-H", "64", "-o", "a.png", "--overwrite"};
    all.insert(all.end(), more.begin(), more.end());
    out_of(all, {"adams_bashforth"});
    const auto text = tenon::read_png_text(folder() / "a.png");
    json about = json::parse(text.at("tenon"));
    about["parameters"] = text.at("parameters");
    return about;
  }
};

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text.substr(0, 2000);
}

TEST_F(CliNewFiles, APresetIsAModel) {
  expect_in("Stable Diffusion with 16 to 64 channels", out_of({"inspect", "-m", "random:slim"}, {"slim"}));
  expect_in("text_model.encoder.layers.1.mlp.fc2",
            out_of({"explain", "-m", "random:slim", "--part", "text"}, {"slim"}));
  expect_in("random:slim", out_of({"completion", "bash"}, {"slim"}));
  expect_error(2, {"inspect", "-m", "random:slim"}, {"no preset named 'slim'"});
}

TEST_F(CliNewFiles, ASamplerDraws) {
  const json one = drawn({"--sampling-method", "ab2", "--steps", "1"}),
             two = drawn({"--sampling-method", "Adams-Bashforth", "--steps", "2"});
  for (const json& j : {one, two}) {
    EXPECT_EQ(j.at("sampler"), "ab2");
    expect_in("Sampler: Adams-Bashforth, ", j.at("parameters"));
  }
  const auto euler = [&](const char* steps) {
    return drawn({"--sampling-method", "euler", "--steps", steps}).at("pixels_sha256");
  };
  EXPECT_EQ(one.at("pixels_sha256"), euler("1")) << "its first step is Euler's";
  EXPECT_NE(two.at("pixels_sha256"), euler("2"));
  for (const auto& shown : {std::vector<std::string>{"generate", "--help"}, {"completion", "bash"}})
    expect_in("ab2", out_of(shown, {"adams_bashforth"}));
  expect_error(2, {"generate", "a red circle", "--sampling-method", "ab2"}, {"'ab2'", "euler"});
}

TEST_F(CliNewFiles, ASamplerIsSelectedByItsClass) {
  fs::copy(model(), folder() / "model", fs::copy_options::recursive);
  const fs::path file = folder() / "model/scheduler/scheduler_config.json";
  json config = json::parse(std::ifstream(file));
  config["_class_name"] = "AdamsBashforthScheduler";
  std::ofstream(file) << config;
  EXPECT_EQ(drawn({"-m", "model", "--steps", "2"}).at("sampler"), "ab2");
}

TEST_F(CliNewFiles, ABackendRunsPlans) {
  const std::vector<std::string> files = {"naive_backend", "slim"};
  expect_in("naive, fp64 node by node", out_of({"--list-devices"}, files));
  const json devices = json::parse(out_of({"env", "--json", "--device", "naive"}, files)).at("devices");
  EXPECT_TRUE(std::ranges::any_of(devices, [](const json& d) { return d.at("name") == "naive"; })) << devices;
  // Every launch of a network, against the oracle, and a whole picture.
  const std::string checked = out_of(
      {"verify", "-m", "random:slim", "--part", "unet", "-W", "16", "-H", "16", "--no-parity", "--device", "naive"},
      files);
  expect_in("oracle unet conv_out: error", checked);
  expect_in(" 0 failed, 0 skipped", checked);
  out_of({"generate", "a red circle", "-m", model(), "-W", "16", "-H", "16", "--steps", "1", "--device", "naive"},
         files);
  EXPECT_EQ(tenon::read_png(folder() / "output.png").width, 16);
  expect_error(6, {"verify", "--device", "naive"}, {"no backend 'naive'"});
}

TEST_F(CliNewFiles, AVerbRunsAndIsDescribed) {
  const Finished f = with_verb({"tally", "Noon", "--case", "lower", "-o", "tally.html", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(json::parse(f.out), json::parse(R"({"n": 2, "o": 2})"));
  std::ifstream file(folder() / "tally.html");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const char* part : {"dt { float: left", "<dl id=\"letters\">", R"(const counts = {"n":2,"o":2};)",
                           "document.getElementById(\"letters\")"})
    expect_in(part, page);
  EXPECT_EQ(with_verb({"tally", "Noon", "--case", "upper"}).code, 2);
  for (const std::vector<std::string>& shown :
       {std::vector<std::string>{"--help"}, {"man"}, {"completion", "bash"}, {"completion", "zsh"}}) {
    const std::string text = with_verb(shown).out;
    expect_in("tally", text);
    if (shown[0] != "--help") expect_in("lower", text);
  }
  expect_in("did you mean `tally`?", with_verb({"taly"}).err);
  expect_error(2, {"tally", "Noon"}, {"tally"});
}

}  // namespace
}  // namespace cli
