// Features through the command line; comparing one block; output of TENON_DUMP.
#include <sys/resource.h>

#include <fstream>
#include <sstream>

#include "tenon/io/image.h"
#include "tests/cli/cli.h"

namespace cli {
namespace {
using nlohmann::json;

class CliEmbed : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    for (const char* name : {"a.png", "b.png"}) {
      tenon::Image image{40, 30, 3, {}};
      for (int i = 0; i < 40 * 30 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 7 + name[0] * 50));
      tenon::write_png(folder() / name, image, {}, tenon::Overwrite::No);
    }
  }
  static std::vector<std::string> small(std::vector<std::string> more) {
    for (const char* a : {"-m", "random:vit-s14", "--size", "42"}) more.emplace_back(a);
    return more;
  }
  std::string bytes(const std::string& name) const {
    std::stringstream out;
    out << std::ifstream(folder() / name, std::ios::binary).rdbuf();
    return out.str();
  }
};

TEST_F(CliEmbed, WritesFeaturesPatchesAndComponents) {
  const Finished f = tenon(small({"embed", "a.png", "b.png", "--patches", "p.npy", "--pca", "c.png"}));
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.out, "features.npy\np.npy\nc_0.png\nc_1.png\n");
  EXPECT_NE(bytes("features.npy").find("(2, 384)"), std::string::npos);
  EXPECT_NE(bytes("p.npy").find("(2, 3, 3, 384)"), std::string::npos);
  EXPECT_EQ(tenon::read_png(folder() / "c_1.png").width, 42);
  // One picture alone equals its row, bit for bit.
  ASSERT_EQ(tenon(small({"embed", "b.png", "-o", "one.npy", "--pca", "d.jpg"})).code, 0);
  EXPECT_TRUE(bytes("d.jpg").starts_with("\xff\xd8"));
  const std::string all = bytes("features.npy"), one = bytes("one.npy");
  EXPECT_EQ(all.substr(all.size() - 4 * 384), one.substr(one.size() - 4 * 384));
}

TEST_F(CliEmbed, Json) {
  const Finished f =
      tenon(small({"embed", "a.png", "-o", "f.json", "--preprocessing", "hf", "--type", "f32", "--json"}));
  ASSERT_EQ(f.code, 0) << f.err;
  const json line = json::parse(f.out);
  EXPECT_EQ(line["preprocessing"], "hf");
  EXPECT_EQ(line["side"], 42);
  EXPECT_EQ(line["type"], "f32");
  EXPECT_EQ(line["grid"], (std::vector<int>{3, 3}));
  const json file = json::parse(bytes("f.json"));
  EXPECT_EQ(file["images"][0]["path"], "a.png");
  EXPECT_EQ(file["images"][0]["feature"].size(), 384u);
}

TEST_F(CliEmbed, EndingsOfAnyCase) {
  const Finished array = tenon(small({"embed", "a.png", "-o", "F.NPY"}));
  ASSERT_EQ(array.code, 0) << array.err;
  EXPECT_TRUE(bytes("F.NPY").starts_with("\x93NUMPY"));
  const Finished text = tenon(small({"embed", "a.png", "-o", "F.Json"}));
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(json::parse(bytes("F.Json"))["images"][0]["path"], "a.png");
}

TEST_F(CliEmbed, Errors) {
  expect_error(2, small({"embed", "a.png", "-o", "a.txt"}), {"--output", "a.txt", ".npy"});
  expect_error(2, small({"embed", "a.png", "--patches", "features.npy"}), {"features.npy", "twice"});
  expect_error(2, small({"embed", "none.png"}), {"none.png"});
  tenon::write_png(folder() / "long.png", {1000, 1, 3, std::vector<uint8_t>(3000)}, {}, tenon::Overwrite::No);
  expect_error(2, small({"embed", "a.png", "long.png"}), {"[long.png] 1000x1 is too long"});
  std::ofstream(folder() / "cut.png") << bytes("a.png").substr(0, 200);
  expect_error(2, small({"embed", "a.png", "cut.png"}), {"cut.png", "cannot read as PNG"});
  expect_error(2, small({"embed", "a.png", ""}), {"IMAGE: is empty"});
  expect_error(2, {"embed", "a.png", "-m", ""}, {"--model: is empty"});
  expect_error(2, small({"embed", "a.png", "--pca", "a.png"}), {"a.png", "exists"});
  expect_error(2, {"embed", "a.png", "-m", "random:vit-s14", "--size", "43"}, {"[size] 43", "nearest is 42"});
  expect_error(2, small({"embed", "a.png", "--pca", "a.gif"}), {"--pca", "a.gif"});
  expect_error(2, small({"embed", "a.png", "--pca", "a%s.png"}), {"--pca", "%d"});
  expect_error(3, {"embed", "a.png", "-m", "random:sd15"}, {"sd15", "vit-g14"});
  expect_error(3, {"embed", "a.png", "-m", "nowhere"}, {"nowhere"});
  expect_error(3, {"embed", "a.png", "-m", model()}, {"image encoder"});
  expect_error(2, small({"embed", "a.png", "--preprocessing", "x"}), {"x", "timm or hf"});
  expect_error(2, {"explain", "-m", "random:vit-s14", "--part", "unet"}, {"unet", "encoder"});
}

// All outputs or none: the patches (28 kB) are too large, the features (3 kB) would fit.
TEST_F(CliEmbed, OutputsBelongTogether) {
  const auto limit = [] {
    const rlimit small{8000, 8000};
    setrlimit(RLIMIT_FSIZE, &small);
  };
  const std::vector<std::string> before = files();
  const auto command = small({"embed", "a.png", "b.png", "--patches", "p.npy", "--pca", "c.png", "-q"});
  const Finished f = tenon(command, {}, limit);
  EXPECT_EQ(f.code, 1) << f.err;
  EXPECT_NE(f.err.find("[p.npy] cannot write the file: File too large"), std::string::npos) << f.err;
  EXPECT_EQ(files(), before);
  EXPECT_EQ(tenon(command).code, 0);
}

TEST_F(CliEmbed, ItsOwnPicturesAreNotReplaced) {
  const std::string picture = bytes("a.png");
  std::filesystem::create_symlink("a.png", folder() / "link.png");
  for (const char* output : {"./a.png", "link.png"})
    expect_error(2, small({"embed", "a.png", "--pca", output, "--overwrite"}), {output, "pictures to read"});
  expect_error(2, small({"embed", "link.png", "--pca", "a.png", "--overwrite"}), {"a.png", "pictures to read"});
  EXPECT_EQ(bytes("a.png"), picture);
}

TEST_F(CliEmbed, MoreFilesThanMayBeOpen) {
  std::vector<std::string> command = small({"embed", "--pca", "c.png", "-o", "c.npy"});
  for (int i = 0; i < 40; ++i) command.emplace_back("a.png");
  const auto limit = [](rlim_t soft, rlim_t hard) {
    return [soft, hard] {
      const rlimit files{soft, hard};
      setrlimit(RLIMIT_NOFILE, &files);
    };
  };
  const std::vector<std::string> before = files();
  const Finished few = tenon(command, {}, limit(32, 64));
  EXPECT_EQ(few.code, 2) << few.err;
  EXPECT_NE(few.err.find("41 files to write, and no more than 64 may be open"), std::string::npos) << few.err;
  EXPECT_EQ(files(), before);
  EXPECT_EQ(tenon(command, {}, limit(32, 200)).code, 0);
}

TEST_F(CliEmbed, InspectsAndExplainsVisionTransformers) {
  const Finished i = tenon({"inspect", "random:vit-g14", "--json"});
  ASSERT_EQ(i.code, 0) << i.err;
  EXPECT_EQ(json::parse(i.out)["components"]["encoder"]["parameters"], 1136479232);
  const Finished e = tenon({"explain", "-m", "random:vit-g14", "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(json::parse(e.out)["counts"]["total"], 202);
}

TEST_F(CliEmbed, ComparesABlock) {
  const Finished f = tenon({"explain", "-m", "random:vit-g14", "--batch-size", "8", "--compare", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  const json j = json::parse(f.out);
  EXPECT_EQ(j["block"], "blocks.1");
  ASSERT_EQ(j["ways"].size(), 3u);
  const auto launches = [&](int way) { return j["ways"][way]["launches"].size(); };
  const auto moved = [&](int way) { return j["ways"][way]["bytes"].get<int64_t>(); };
  EXPECT_GT(launches(0), 40u);
  EXPECT_LE(launches(1), 9u);
  EXPECT_EQ(launches(2), 5u);
  EXPECT_GT(moved(0), moved(1));
  EXPECT_GT(moved(1), moved(2));
  // Weights with scales folded into them count as they are stored.
  const Finished e = tenon({"explain", "-m", "random:vit-g14", "--batch-size", "8", "--only", "blocks.1.", "--json"});
  const json own = json::parse(e.out)["launches"];
  for (int i = 0; i < 5; ++i) EXPECT_EQ(j["ways"][2]["launches"][i]["bytes"], own[i]["bytes"]) << own[i]["name"];
  const Finished text = tenon({"explain", "-m", "random:vit-g14", "--compare"});
  EXPECT_NE(text.out.find("Tenon: 5 launches"), std::string::npos) << text.out;
}

TEST_F(CliEmbed, Dumps) {
  const Finished f = tenon(small({"embed", "a.png"}), {"TENON_DUMP=dumped"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_NE(bytes("dumped/image_encoder.plan").find("blocks.11.mlp.fc2"), std::string::npos);
  const std::string tape = bytes("dumped/tapes/blocks.0.attn.proj.txt");
  EXPECT_NE(tape.find("accumulator, lane 0"), std::string::npos) << tape;
  EXPECT_NE(tape.find("store v"), std::string::npos) << tape;
  int forms = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / "dumped/forms/image_encoder"))
    forms += entry.path().extension() == ".txt";
  EXPECT_GE(forms, 62);
}

TEST_F(CliEmbed, ADumpThatCannotBeWritten) {
  const auto limit = [] {
    const rlimit small{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &small);
  };
  const Finished full = tenon(small({"embed", "a.png", "-q"}), {"TENON_DUMP=dumped"}, limit);
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_NE(full.err.find("[TENON_DUMP] cannot write dumped/"), std::string::npos) << full.err;
  EXPECT_NE(full.err.find("File too large, errno 27"), std::string::npos) << full.err;
  EXPECT_FALSE(std::filesystem::exists(folder() / "dumped/image_encoder.plan"));
  const Finished file = tenon(small({"embed", "a.png", "-q"}), {"TENON_DUMP=a.png"});
  EXPECT_EQ(file.code, 1) << file.err;
  EXPECT_NE(file.err.find("Not a directory, errno 20"), std::string::npos) << file.err;
}

TEST_F(CliEmbed, DumpsWhatIsOnlyExplained) {
  ASSERT_EQ(tenon({"explain", "-m", "random:vit-s14"}, {"TENON_DUMP=dumped"}).code, 0);
  ASSERT_EQ(tenon({"explain", "-m", "random:vit-s14", "--plan"}, {"TENON_DUMP=planned"}).code, 0);
  const std::string plan = bytes("dumped/image_encoder.plan");
  EXPECT_NE(plan.find("blocks.11.mlp.fc2"), std::string::npos);
  EXPECT_EQ(plan, bytes("planned/image_encoder.plan"));
  EXPECT_TRUE(std::filesystem::is_directory(folder() / "dumped/forms/image_encoder"));
}

}  // namespace
}  // namespace cli
