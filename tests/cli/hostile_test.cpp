// Unexpected files, names and environments: a short line that names the problem and the right exit code, or the right
// result anyway.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tenon/core/text.h"
#include "tenon/core/utf8.h"
#include "tenon/io/image.h"
#include "tests/cli/cli.h"

namespace cli {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

class CliHostile : public CliTest {
 protected:
  fs::path put(const fs::path& name, const std::string& bytes) const {
    std::ofstream(folder() / name, std::ios::binary) << bytes;
    return name;
  }
  void copy_model(const std::string& name = "odd") const {
    fs::remove_all(folder() / name);
    fs::copy(model(), folder() / name, fs::copy_options::recursive);
  }
  // Sets a key in a file of the model "odd".
  void set(const std::string& file, const std::string& key, const json& value) const {
    const fs::path path = folder() / "odd" / file;
    json config = json::parse(std::ifstream(path));
    config[key] = value;
    std::ofstream(path) << config;
  }
  static std::vector<std::string> quick(const std::vector<std::string>& more) {
    std::vector<std::string> all{"generate", "a circle", "-m", model(), "-W", "64", "-H", "64", "--steps", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expect_odd(const std::vector<std::string>& parts) const {
    expect_error(3, {"generate", "a circle", "-m", "odd", "-o", "never.png"}, parts);
  }
};

// ---- the cache folder ----

TEST_F(CliHostile, ACacheThatCannotBeReadIsAWarning) {
  fs::create_symlink("loop", folder() / "loop");
  fs::create_directories(folder() / "fifo");
  ASSERT_EQ(mkfifo((folder() / "fifo/sha256.json").c_str(), 0600), 0);
  fs::create_directories(folder() / "closed");
  put("closed/sha256.json", "[]");
  put("file", "");
  chmod((folder() / "closed").c_str(), 0);
  // A folder that does not exist yet causes no warning.
  for (const auto& [cache, warns] : {std::pair{"loop", true}, {"fifo", true}, {"closed", true}, {"file", false}}) {
    const std::string picture = std::string(cache) + ".png";
    const Finished run = tenon(quick({"-o", picture}), {"TENON_CACHE_DIR=" + (folder() / cache).string()});
    EXPECT_EQ(run.code, 0) << cache << ": " << run.err;
    EXPECT_EQ(run.out, picture + "\n");
    EXPECT_EQ(run.err.find("warning: hash cache: ") != std::string::npos, warns) << cache << ": " << run.err;
  }
  chmod((folder() / "closed").c_str(), 0700);
}

// ---- names ----

TEST_F(CliHostile, NamesThatAreNotUtf8AreKeptAndPrintedEscaped) {
  const std::string odd = "b\xff\x1b\u202e";
  copy_model(odd);
  const Finished plain = tenon({"generate", "a circle", "-q", "--steps", "1", "-m", odd, "-o", odd + ".png"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.out, "b\\xff\\x1b\\u202e.png\n");
  EXPECT_TRUE(fs::exists(folder() / (odd + ".png")));
  const auto text = json::parse(tenon::read_png_text(folder() / (odd + ".png")).at("tenon"));
  EXPECT_EQ(text["model"], "b\\xff\\x1b\\u202e");
  const Finished as_json = tenon({"generate", "a circle", "--json", "-q", "--steps", "1", "-m", odd, "-o", odd + ".png",
                                  "-i", odd + ".png", "--strength", "1", "--overwrite"});
  EXPECT_EQ(as_json.code, 0) << as_json.err;
  EXPECT_EQ(json::parse(as_json.out)["path"], "b\\xff\x1b\u202e.png");
  EXPECT_EQ(as_json.out.find_first_not_of("\n", as_json.out.find('\n')), std::string::npos);
  for (const char c : as_json.out) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f));
  for (const char* flag : {"--json", "-q"}) {
    const Finished inspect = tenon({"inspect", odd, flag});
    EXPECT_EQ(inspect.code, 0) << inspect.err;
    EXPECT_EQ(inspect.out.find_first_of("\xff\x1b\u202e"), std::string::npos) << inspect.out;
  }
}

TEST_F(CliHostile, EmbedWritesUnderNamesThatAreNotUtf8) {
  tenon::write_png(folder() / "p\xff.png", {28, 28, 3, std::vector<uint8_t>(28 * 28 * 3)}, {}, tenon::Overwrite::No);
  for (const std::string name : {"f\xff.json", "f\xff.npy"}) {
    const Finished run =
        tenon({"embed", "p\xff.png", "-m", "random:vit-s14", "--size", "28", "-o", name, "--json", "-q"});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(json::parse(run.out)["output"], tenon::as_utf8(name));
    EXPECT_TRUE(fs::exists(folder() / name));
  }
  EXPECT_TRUE(json::parse(std::ifstream(folder() / "f\xff.json")).contains("images"));
}

TEST_F(CliHostile, OneFileUnderTwoNames) {
  tenon::write_png(folder() / "p.png", {28, 28, 3, std::vector<uint8_t>(28 * 28 * 3)}, {}, tenon::Overwrite::No);
  fs::create_directory(folder() / "sub");
  fs::create_directory_symlink("sub", folder() / "link");
  const auto refused = [&](const std::string& output, const std::string& patches) {
    expect_error(2, {"embed", "p.png", "-m", "random:vit-s14", "--size", "28", "-o", output, "--patches", patches},
                 {"would be written twice"});
  };
  refused("a.npy", "./a.npy");
  refused("sub/a.npy", "link/a.npy");
  refused("sub/../a.npy", (folder() / "a.npy").string());
  refused("sub/./a.npy", "sub/a.npy");
}

// ---- models ----

TEST_F(CliHostile, LoopsOfLinksAndLinksToNothing) {
  const auto with_link = [&](const std::string& file, const std::string& target, const std::string& part) {
    copy_model();
    fs::remove_all(folder() / "odd" / file);
    fs::create_symlink(target, folder() / "odd" / file);
    expect_odd({fs::path(file).filename().string(), part});
  };
  const std::string loop = "Too many levels of symbolic links", nothing = "is a link to a file that does not exist";
  for (const std::string file :
       {"model_index.json", "unet", "unet/config.json", "scheduler", "tokenizer", "vae/config.json",
        "scheduler/scheduler_config.json", "tokenizer/vocab.json", "unet/diffusion_pytorch_model.safetensors"}) {
    with_link(file, fs::path(file).filename(), loop);
    with_link(file, "nothing", nothing);
  }
  fs::create_symlink("loop", folder() / "loop");
  expect_error(3, {"generate", "a circle", "-m", "loop"}, {"loop", loop});
  expect_error(3, {"inspect", "loop"}, {"loop", loop});
  ASSERT_EQ(tenon(quick({"-o", "p.png", "-q"})).code, 0);
  expect_error(3, {"embed", "p.png", "-m", "loop"}, {"loop", loop});
}

TEST_F(CliHostile, FilesOfTheWrongKind) {
  const auto with = [&](const std::string& file, const std::string& text, const std::vector<std::string>& parts) {
    copy_model();
    put("odd/" + file, text);
    expect_odd(parts);
  };
  for (const std::string file : {"tokenizer/tokenizer_config.json", "unet/config.json", "vae/config.json",
                                 "text_encoder/config.json", "scheduler/scheduler_config.json", "model_index.json"})
    for (const std::string text : {"[1]", "\"x\"", "3", "null", "", "{", "\xff"}) with(file, text, {file});
  with("tokenizer/tokenizer_config.json", R"({"pad_token": 3})", {"tokenizer_config.json", "pad_token", "found 3"});
  with("tokenizer/tokenizer_config.json", R"({"model_max_length": "x"})",
       {"tokenizer_config.json", "model_max_length"});
  with("tokenizer/vocab.json", "[]", {"vocab.json", "expected an object"});
  with("tokenizer/vocab.json", R"({"a": -1})", {"vocab.json", "'a'", "found -1"});
  copy_model();
  fs::remove(folder() / "odd/unet/config.json");
  fs::create_directory(folder() / "odd/unet/config.json");
  expect_odd({"unet/config.json", "expected a regular file"});
}

TEST_F(CliHostile, ValuesThatAreAbsurd) {
  const auto with = [&](const std::string& file, const std::string& key, const json& value,
                        const std::vector<std::string>& parts) {
    copy_model();
    set(file, key, value);
    expect_odd(parts);
  };
  const std::string unet = "unet/config.json", scheduler = "scheduler/scheduler_config.json";
  with(unet, "sample_size", int64_t{1} << 60, {unet, "'sample_size' is 1152921504606846976, expected a whole number"});
  with(unet, "sample_size", 1e300, {unet, "'sample_size' is 1e+300"});
  with(unet, "sample_size", "64", {unet, "'sample_size' is \"64\""});
  with(unet, "in_channels", std::string(5000, 'x') + "\x1b[31m\u202e",
       {unet, "'in_channels' is \"xxx", "expected a whole"});
  with(unet, "in_channels", 18446744073709551615u, {unet, "18446744073709551615"});
  with(unet, "in_channels", json::array({json::object({{"a", std::string(9000, 'y')}})}),
       {unet, "'in_channels' is [{"});
  with(scheduler, "beta_start", "none", {scheduler + " beta_start", "expected a number, got \"none\""});
  with(scheduler, "num_train_timesteps", 1e18, {scheduler + " num_train_timesteps"});
  with(scheduler, "_class_name", std::string(3000, 'S') + "\u009b", {scheduler, "SSS", "is not implemented"});
}

TEST_F(CliHostile, WarningsAreEscapedAndShort) {
  copy_model();
  set("unet/config.json", std::string(4000, 'k') + "\x1b[2J\n\u202e", 1);
  for (int i = 0; i < 30; ++i) set("unet/config.json", "unknown" + std::to_string(i), 1);
  const Finished run = tenon({"generate", "a circle", "-m", "odd", "--steps", "1", "-o", "a.png"});
  EXPECT_EQ(run.code, 0) << run.err;
  std::istringstream lines(run.err);
  int warnings = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 500u);
    EXPECT_EQ(line, tenon::escaped(line));
    warnings += line.starts_with("warning: ");
  }
  EXPECT_EQ(warnings, 9) << run.err;
}

// ---- arguments ----

TEST_F(CliHostile, EmptyValues) {
  for (const char* flag : {"--init-img", "--model", "--type", "--output", "--sampling-method", "--scheduler", "--steps",
                           "--prompt-file", "--device", "--threads", "--color"})
    expect_error(2, {"generate", "a circle", flag, ""}, {flag, ""});
  expect_error(2, {"embed", "", "-m", "random:vit-s14"}, {"IMAGE", "is empty"});
  expect_error(2, {"embed", "p.png", "-m", ""}, {"--model", "is empty"});
  expect_error(2, {"embed", "p.png", "-m", "random:vit-s14", "--patches", ""}, {"--patches", "is empty"});
  expect_error(2, {"embed", "p.png", "-m", "random:vit-s14", "--preprocessing", ""}, {"--preprocessing", "is empty"});
  expect_error(2, {"explain", "--html", ""}, {"--html", "is empty"});
  expect_error(2, {"explain", "--part", ""}, {"--part", "is empty"});
  expect_error(2, {"inspect", ""}, {"model", "is empty"});
  expect_error(2, {"verify", "--fixtures", ""}, {"--fixtures", "is empty"});
  EXPECT_EQ(tenon({"generate", "", "-n", "", "-m", model(), "-q", "--steps", "1", "-o", "a.png"}).code, 0);
}

TEST_F(CliHostile, LongPrompts) {
  put("long.txt", std::string(65537, 'a'));
  expect_error(2, {"generate", "--prompt-file", "long.txt", "-m", model()}, {"long.txt", "65537", "65536"});
  // Sorting 32,767 marks by swapping neighbours would be slow.
  std::string marks = "a";
  while (marks.size() < 65000) marks += "\u0301\u0323";
  put("marks.txt", marks);
  expect_error(2, {"generate", "--prompt-file", "marks.txt", "-m", model()}, {"prompt", "combining marks"});
  expect_error(2, {"generate", std::string(100000, 'b'), "-m", model()}, {"prompt", "100000", "65536"});
}

// ---- outputs ----

TEST_F(CliHostile, OverwritingThroughALinkKeepsTheLink) {
  fs::create_directory(folder() / "sub");
  put("sub/target.png", "old");
  fs::create_symlink("sub/target.png", folder() / "a.png");
  fs::create_symlink("a.png", folder() / "b.png");
  fs::create_symlink("sub/none.png", folder() / "dangling.png");
  expect_error(2, quick({"-o", "b.png"}), {"b.png", "exists already"});
  expect_error(2, quick({"-o", "dangling.png"}), {"dangling.png", "exists already"});
  EXPECT_EQ(tenon(quick({"-o", "b.png", "--overwrite", "-q"})).out, "b.png\n");
  EXPECT_TRUE(fs::is_symlink(folder() / "a.png") && fs::is_symlink(folder() / "b.png"));
  EXPECT_EQ(tenon::read_png(folder() / "sub/target.png").width, 64);
  EXPECT_EQ(tenon(quick({"-o", "dangling.png", "--overwrite", "-q"})).out, "dangling.png\n");
  EXPECT_EQ(tenon::read_png(folder() / "sub/none.png").width, 64);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder() / "sub"), {}), 2);
}

TEST_F(CliHostile, NobodyWaitsForAModelThatIsAPipe) {
  ASSERT_EQ(mkfifo((folder() / "model.safetensors").c_str(), 0600), 0);
  expect_error(3, {"inspect", "model.safetensors"}, {"model.safetensors"});
  expect_error(3, {"generate", "a circle", "-m", "model.safetensors"}, {"model.safetensors"});
}

TEST_F(CliHostile, OnlyFilesAreOverwritten) {
  ASSERT_EQ(mkfifo((folder() / "fifo.png").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", folder() / "null.png");
  fs::create_symlink("/dev/full", folder() / "full.html");
  fs::create_symlink("loop.png", folder() / "loop.png");
  fs::create_directory(folder() / "dir.html");
  expect_error(2, quick({"-o", "fifo.png", "--overwrite"}), {"fifo.png", "is a FIFO"});
  expect_error(2, quick({"-o", "fifo.png"}), {"fifo.png", "is a FIFO"});
  expect_error(2, quick({"-o", "null.png", "--overwrite"}), {"null.png", "is a device"});
  expect_error(2, quick({"-o", "loop.png", "--overwrite"}), {"loop.png", "loop of symbolic links"});
  expect_error(2, {"explain", "--html", "dir.html", "--overwrite"}, {"dir.html", "is a folder"});
  expect_error(2, {"explain", "--html", "full.html", "--overwrite"}, {"full.html", "is a device"});
  EXPECT_TRUE(fs::is_fifo(folder() / "fifo.png"));
}

// ---- environment ----

TEST_F(CliHostile, ALimitOnTheSizeOfFiles) {
  const auto limit = [] {
    const rlimit small{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &small);
  };
  const Finished run = tenon(quick({"-o", "a.png", "-q"}), {}, limit);
  EXPECT_EQ(run.code, 1);
  // stderr is also a file here, which stays below the limit.
  EXPECT_NE(run.err.find("[a.png] cannot write the file: File too large"), std::string::npos) << run.err;
  EXPECT_TRUE(files().empty());
}

TEST_F(CliHostile, TooFewThreads) {
  const auto limit = [] {
    const rlimit stack{rlim_t{512} << 20, rlim_t{512} << 20}, space{rlim_t{2400} << 20, rlim_t{2400} << 20};
    setrlimit(RLIMIT_STACK, &stack);  // of each thread: a few fit, and the rest is enough for everything else
    setrlimit(RLIMIT_AS, &space);
  };
  const Finished run = tenon(quick({"-o", "a.png", "--threads", "200"}), {}, limit);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("warning: threads: started only "), std::string::npos) << run.err;
}

TEST_F(CliHostile, AWorkingDirectoryThatIsGone) {
  fs::create_directory(folder() / "gone");
  const auto leave = [this] {
    if (chdir((folder() / "gone").c_str()) != 0 || rmdir((folder() / "gone").c_str()) != 0) _exit(127);
  };
  const Finished run = tenon(quick({"-o", "a.png", "-q"}), {}, leave);
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.err.find("[a.png] cannot "), std::string::npos) << run.err;
  fs::create_directory(folder() / "gone");
  const std::string elsewhere = (folder() / "a.png").string();
  const Finished fine = tenon(quick({"-o", elsewhere, "-q"}), {}, leave);
  EXPECT_EQ(fine.code, 0) << fine.err;
  fs::create_directory(folder() / "gone");
  EXPECT_EQ(tenon({"env"}, {}, leave).code, 0);
}

}  // namespace
}  // namespace cli
