// Help as verbs, suggestions for misspellings, shell completion, the manual page.
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/cli/cli.h"

namespace cli {
namespace {

class CliHelp : public CliTest {
 protected:
  std::string out_of(const std::vector<std::string>& arguments) const {
    const Finished f = tenon(arguments);
    EXPECT_EQ(f.code, 0) << f.err;
    return f.out;
  }
  // The output of a shell command; empty if the shell is not installed.
  std::string shell(const std::string& name, const std::string& script) const {
    std::ofstream(folder() / "script") << script;
    const std::string run = "cd '" + folder().string() + "' && PATH=" TENON_BINARY_DIR "/bin:$PATH " + name +
                            " script >shell.txt 2>shell-errors.txt";
    if (std::system(("command -v " + name + " >/dev/null").c_str()) != 0) return {};
    EXPECT_EQ(std::system(run.c_str()), 0) << text_of("shell-errors.txt");
    EXPECT_EQ(text_of("shell-errors.txt"), "");
    return text_of("shell.txt");
  }
  std::string text_of(const std::string& name) const {
    std::ifstream in(folder() / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

// Verbs and long flags, as --help lists them.
std::set<std::string> verbs_of(const std::string& help) {
  std::set<std::string> out;
  std::istringstream lines(help.substr(help.find("Subcommands:")));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("  ")) out.insert(line.substr(2, line.find(' ', 2) - 2));
  return out;
}
std::set<std::string> flags_of(const std::string& help) {
  static const std::regex kFlag("--[a-z][a-z0-9-]+");
  const std::string options = help.substr(0, help.find("Every verb takes"));
  std::set<std::string> out;
  std::istringstream lines(options);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  -")) continue;
    const std::string names = line.substr(0, line.find(' ', 2));
    for (std::sregex_iterator m(names.begin(), names.end(), kFlag), end; m != end; ++m) out.insert(m->str());
  }
  return out;
}

TEST_F(CliHelp, HelpAndVersionAreVerbsToo) {
  EXPECT_EQ(out_of({"help"}), out_of({"--help"}));
  EXPECT_EQ(out_of({"help", "generate"}), out_of({"generate", "--help"}));
  for (const char* method : {"grpo", "lora"})
    EXPECT_EQ(out_of({"help", "train", method}), out_of({"train", method, "--help"}));
  EXPECT_EQ(out_of({"version"}), out_of({"--version"}));
  const nlohmann::json version = nlohmann::json::parse(out_of({"version", "--json"}));
  for (const char* key : {"version", "commit", "compiler", "build_type"}) EXPECT_TRUE(version.contains(key)) << key;
  expect_error(2, {"help", "generat"}, {"generat", "did you mean `generate`?"});
  expect_error(2, {"help", "train", "gpro"}, {"there is no method 'gpro'", "there are grpo, lora"});
  expect_error(2, {"help", "bench", "grpo"}, {"[tenon bench] there is no method 'grpo'", "it has none"});
}

TEST_F(CliHelp, SaysWhatIsTrueOfTheVerb) {
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"train", "grpo"}, {"train", "lora"}, {"chat"}}) {
    std::vector<std::string> asked = verb;
    asked.emplace_back("--help");
    const std::string help = out_of(asked);
    EXPECT_NE(help.find("Every verb takes"), std::string::npos) << verb.back();
    EXPECT_EQ(help.find("1099511627776"), std::string::npos) << verb.back();
    EXPECT_EQ(help.find("(default: f32)") != std::string::npos, verb.front() == "train") << verb.back();
  }
}

TEST_F(CliHelp, VariablesStandInOnePlace) {
  EXPECT_NE(out_of({"env", "--help"}).find("TENON_CACHE_DIR"), std::string::npos);
  for (const char* verb : {"generate", "explain", "bench"})
    EXPECT_EQ(out_of({verb, "--help"}).find("TENON_CACHE_DIR"), std::string::npos) << verb;
  EXPECT_EQ(out_of({"--help"}).find("TENON_CACHE_DIR"), std::string::npos);
}

TEST_F(CliHelp, TheEmbeddedModelsWordsAreListed) {
  const std::string help = out_of({"generate", "--help"});
  for (const char* word : {" triangle", " hoop", " violet", " tiny", " beneath", " illustration"})
    EXPECT_NE(help.find(word), std::string::npos) << word;
}

TEST_F(CliHelp, MisspelledFlags) {
  expect_error(2, {"generate", "a circle", "--stpes", "3"}, {"--stpes", "did you mean `--steps`?"});
  expect_error(2, {"generate", "a circle", "--sede=3"}, {"--sede", "did you mean `--seed`?"});
  expect_error(2, {"generate", "a circle", "-steps", "3"}, {"did you mean `--steps`?"});
  expect_error(2, {"explain", "--devise", "cpu"}, {"--devise", "did you mean `--device`?"});
  expect_error(2, {"bench", "--no-anchor"}, {"did you mean `--no-anchors`?"});
}

TEST_F(CliHelp, MisspelledVerbs) {
  expect_error(2, {"generat", "a circle"}, {"generat", "did you mean `generate`?"});
  expect_error(2, {"--threads", "2", "explian"}, {"explian", "did you mean `explain`?"});
  expect_error(2, {"a red circle"}, {"a red circle", "tenon generate"});
}

TEST_F(CliHelp, MisspelledValues) {
  expect_error(2, {"generate", "a circle", "-m", model(), "--sampler", "eulr"}, {"eulr", "did you mean 'euler'?"});
  expect_error(2, {"generate", "a circle", "-m", model(), "--sampling-method", "DPM++ 2N"}, {"did you mean"});
  expect_error(2, {"generate", "a circle", "--scheduler", "karas"}, {"karas", "did you mean 'karras'?"});
  expect_error(2, {"explain", "-m", "random:sd51"}, {"sd51", "did you mean 'sd15'?"});
  expect_error(2, {"generate", "a circle", "-m", "random:sd16"}, {"sd16", "did you mean 'sd15'?"});
  expect_error(2, {"explain", "-m", "random:vit-s"}, {"vit-s", "did you mean 'vit-s14'?"});
  expect_error(3, {"explain", "-m", "randm:sd15"}, {"did you mean 'random:sd15'?"});
  expect_error(3, {"explain", "-m", "sd15"}, {"did you mean 'random:sd15'?"});
  expect_error(2, {"explain", "--part", "uent"}, {"uent", "did you mean 'unet'?"});
  expect_error(6, {"explain", "--device", "cup"}, {"cup", "did you mean 'cpu'?"});
  EXPECT_EQ(tenon({"explain", "--device", "gpu"}).err.find("'cpu'?"), std::string::npos);
  std::filesystem::create_directory(folder() / "stable-diffusion");
  expect_error(3, {"inspect", "stable-difusion"}, {"did you mean 'stable-diffusion'?"});
}

TEST_F(CliHelp, FlagsWithoutAValueAndGivenTwice) {
  expect_error(2, {"generate", "a circle", "--steps", "2", "--steps", "3"}, {"error: --steps: given more than once"});
  expect_error(2, {"generate", "a circle", "--sampler", "euler", "--sampling-method", "ddim"},
               {"--sampling-method, --sampler: given more than once"});
  const auto expect_last = [this](const std::vector<std::string>& arguments, const std::string& part) {
    const Finished run = tenon(arguments);  // expect_error would append -q
    EXPECT_EQ(run.code, 2);
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
  };
  expect_last({"generate", "a circle", "--steps"}, "error: --steps: needs a number");
  expect_last({"generate", "a circle", "--cfg-scale"}, "--cfg-scale: needs a number");
  expect_last({"explain", "-m"}, "error: -m: needs a value");
  expect_last({"explain", "--color"}, "--color: needs a value: auto, always, never");
}

TEST_F(CliHelp, APromptWithoutQuotes) {
  expect_error(2, {"generate", "a", "red", "circle"}, {"'red' was not expected", "tenon generate \"a red circle\""});
}

TEST_F(CliHelp, SamplerIsAnAliasOfSamplingMethod) {
  const std::vector<std::string> draw{"generate", "a circle", "-m", model(),  "-W", "64",    "-H",        "64",
                                      "--steps",  "1",        "-q", "--json", "-o", "a.png", "--sampler", "Euler a"};
  EXPECT_EQ(nlohmann::json::parse(out_of(draw)).at("sampler"), "euler_a");
}

// Every verb and flag in --help is in every completion script and in the manual page.
TEST_F(CliHelp, NothingIsMissingInWhatIsMadeOfTheDescriptions) {
  std::string man = out_of({"man"});
  man = std::regex_replace(man, std::regex(R"(\\-)"), "-");
  const std::set<std::string> verbs = verbs_of(out_of({"--help"}));
  EXPECT_GE(verbs.size(), 12u);
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = out_of({"completion", shell});
    for (const std::string& verb : verbs) {
      EXPECT_NE(script.find(verb), std::string::npos) << shell << " " << verb;
      EXPECT_NE(man.find(".SS tenon " + verb), std::string::npos) << verb;
      for (const std::string& flag : flags_of(out_of({verb, "--help"}))) {
        if (flag == "--help") continue;
        const std::string in_shell = shell == std::string("fish") ? "-l " + flag.substr(2) : flag;
        EXPECT_NE(script.find(in_shell), std::string::npos) << shell << " " << verb << " " << flag;
        EXPECT_NE(man.find(flag), std::string::npos) << verb << " " << flag;
      }
    }
  }
  expect_error(2, {"completion", "csh"}, {"csh", "bash, zsh, fish"});
}

TEST_F(CliHelp, TheManualPageSaysWhatValuesAre) {
  const std::string man = std::regex_replace(out_of({"man"}), std::regex(R"(\\-)"), "-");
  for (const char* part : {"\\fIMODEL\\fR, \\fB-m\\fR", "one of auto, always, never", "such as random:", " triangle",
                           "4 out of memory or the plan does not fit", "129 hung up"})
    EXPECT_NE(man.find(part), std::string::npos) << part;
}

TEST_F(CliHelp, BashCompletes) {
  const std::string frame =
      "source <(tenon completion bash)\n"
      "offer() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _tenon; echo \"${COMPREPLY[*]}\"; }\n";
  std::ofstream(folder() / "z.gguf");
  const std::string out = shell("bash", frame +
                                            "offer tenon gen\n"
                                            "offer tenon generate --ste\n"
                                            "offer tenon generate x --sampler eul\n"
                                            "offer tenon explain -m random : vit-s\n"
                                            "offer tenon bench --part = un\n"
                                            "offer tenon generate -o ''\n"
                                            "offer tenon completion ''\n"
                                            "offer tenon --device cp\n"
                                            "offer tenon help exp\n"
                                            "offer tenon help train ''\n"
                                            "offer tenon train lora --da\n"
                                            "offer tenon train lora --cap\n"
                                            "offer tenon train grpo --da\n"
                                            "offer tenon generate -m def\n"
                                            "offer tenon bench -m z\n");
  EXPECT_EQ(out,
            "generate\n--steps\neuler euler_a\nvit-s14 vit-s14-reg\nunet\n\nbash zsh fish\ncpu\nexplain\n"
            "grpo lora\n\n--caption\n--data --dataset\ndefault-model\nz-image-shapes z.gguf\n");
}

TEST_F(CliHelp, FishCompletes) {
  const std::string out = shell("fish",
                                "tenon completion fish | source\n"
                                "complete -C 'tenon gen'\n"
                                "complete -C 'tenon generate --ste'\n"
                                "complete -C 'tenon generate x --sampler eul'\n"
                                "complete -C 'tenon explain -m '\n"
                                "complete -C 'tenon help train '\n"
                                "echo lora; complete -C 'tenon train lora --da'; echo grpo\n"
                                "complete -C 'tenon train grpo --da'\n");
  if (out.empty()) GTEST_SKIP() << "no fish here";
  for (const char* part :
       {"generate\t", "--steps\t", "euler_a", "\nscript\n", "random:sd15\t", "grpo\t", "lora\t", "lora\ngrpo\n--data"})
    EXPECT_NE(out.find(part), std::string::npos) << out;
}

// A model is a name or a file; embed does not offer models that draw.
TEST_F(CliHelp, ModelsAreCompletedAsNamesAndFiles) {
  const std::string zsh = out_of({"completion", "zsh"}), fish = out_of({"completion", "fish"});
  const auto lines_with = [](const std::string& script, const std::string& verb, const std::string& flag) {
    std::istringstream lines(script.substr(script.find(verb)));
    std::string line;
    while (std::getline(lines, line) && line.find(flag) == std::string::npos) continue;
    return line;
  };
  for (const char* verb : {"explain", "inspect", "embed"}) {
    const std::string in_zsh = lines_with(zsh, std::string("    ") + verb + ") _arguments", "--model=["),
                      in_fish = lines_with(fish, std::string("__fish_seen_subcommand_from ") + verb + "'", "-l model");
    for (const std::string& line : {in_zsh, in_fish}) {
      EXPECT_NE(line.find("vit-s14"), std::string::npos) << line;
      EXPECT_EQ(line.find("sd15") == std::string::npos, verb == std::string("embed")) << line;
    }
    EXPECT_NE(in_zsh.find("_files"), std::string::npos) << in_zsh;
    EXPECT_NE(in_fish.find(" -F"), std::string::npos) << in_fish;
  }
}

TEST_F(CliHelp, ZshReadsTheScript) {
  const std::string out = shell("zsh", "tenon completion zsh >_tenon && zsh -n _tenon && echo good\n");
  if (out.empty()) GTEST_SKIP() << "no zsh here";
  EXPECT_EQ(out, "good\n");
}

}  // namespace
}  // namespace cli
