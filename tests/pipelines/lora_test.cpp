// Pictures with LoRAs against diffusers and PEFT (tools/fixtures/lora.py); changing LoRAs needs no new plan and leaves
// no trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "tenon/core/error.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/io/files.h"
#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"
#include "tenon/pipelines/families/z_image/generator.h"
#include "tenon/pipelines/picture_text.h"
#include "tests/fixtures/lora_files.h"
#include "tests/support/close.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;
using fixtures::lora_recorded;
using testing::HasSubstr;

class LoraPictures : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (fs::temp_directory_path() / "tenon-loras-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    folder = name;
    fixtures::write_diffusers_folder(folder / "sd", DType::F32);
    fixtures::write_z_image(folder / "z-image");
    for (const auto& [file, about] : lora_recorded().at("files").items())
      fixtures::recorded_lora(file).write(folder / (file + ".safetensors"));
  }
  static void TearDownTestSuite() { fs::remove_all(folder); }

  static PipelineOptions options(LoraApply apply, DType type = DType::F32) {
    PipelineOptions o;
    o.type = type;
    o.lora_apply = apply;
    o.lora_rank = 8;
    o.lora_folder = folder;
    o.keep_networks = true;
    return o;
  }
  static std::unique_ptr<TextToImage> sd(const PipelineOptions& o) {
    return std::make_unique<TextToImage>(StableDiffusionModel::open((folder / "sd").string()), o);
  }
  static std::unique_ptr<ZImageGenerator> dit(const PipelineOptions& o) {
    return std::make_unique<ZImageGenerator>(ZImageModel::open((folder / "z-image").string()), o);
  }
  static LoraUse use(const std::string& name, double weight = 1) {
    return {.file = folder / (name + ".safetensors"), .weight = weight};
  }
  static ImageRequest request(bool z_image, std::vector<LoraUse> loras = {}) {
    ImageRequest r;
    r.prompt = lora_recorded().at(z_image ? "z_image_prompt" : "prompt");
    r.negative = z_image ? "" : lora_recorded().at("negative_prompt").get<std::string>();
    r.loras = std::move(loras);
    r.width = z_image ? 48 : 56;
    r.height = z_image ? 32 : 40;
    r.steps = 3;
    r.sampler = "euler";
    r.cfg_scale = z_image ? 1 : 5;
    r.seed = 7;
    r.decode = false;
    return r;
  }
  static std::vector<float> latents(ImageGenerator& model, std::vector<LoraUse> loras = {}) {
    return model.generate(request(dynamic_cast<ZImageGenerator*>(&model) != nullptr, std::move(loras))).latents;
  }

  static fs::path folder;
};
fs::path LoraPictures::folder;

TEST_F(LoraPictures, AgreeWithPeft) {
  const SafetensorsFile recorded = SafetensorsFile::open(fixtures::z_image_fixture("lora.safetensors"));
  int compared = 0;
  for (const LoraApply apply : {LoraApply::Merge, LoraApply::Side}) {
    const auto of_sd = sd(options(apply));
    const auto of_dit = dit(options(apply));
    for (const auto& c : lora_recorded().at("cases")) {
      const std::string name = c.at("name");
      std::vector<LoraUse> loras;
      for (const auto& l : c.at("loras")) loras.push_back(use(l.at(0), l.at(1)));
      const bool filters = name == "sd diffusers" || name == "sd both";
      if (apply == LoraApply::Side && filters) continue;  // merged only
      ImageGenerator& model = c.at("model") == "sd" ? static_cast<ImageGenerator&>(*of_sd) : *of_dit;
      const TensorView& want = recorded.at(name);
      std::vector<float> expected(static_cast<size_t>(want.shape.numel()));
      std::memcpy(expected.data(), want.data, want.size);
      EXPECT_TRUE(close_to_largest(latents(model, loras), expected, 1e-4)) << name << (apply == LoraApply::Side);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 10);
}

TEST_F(LoraPictures, ChangingOnePlansNothingAndTakingItOffLeavesNoTrace) {
  const auto plain = latents(*sd(options(LoraApply::Merge)));
  for (const LoraApply apply : {LoraApply::Merge, LoraApply::Side}) {
    const auto model = sd(options(apply));
    EXPECT_EQ(latents(*model), plain);  // empty branches change no bit
    const KeptNetworks::Counters before = model->kept().counters();
    const auto with = latents(*model, {use("kohya")});
    EXPECT_NE(with, plain);
    EXPECT_EQ(latents(*model, {use("kohya", 0)}), plain);
    EXPECT_EQ(latents(*model, {use("kohya")}), with);
    EXPECT_EQ(latents(*model), plain);
    const KeptNetworks::Counters after = model->kept().counters();
    EXPECT_EQ(after.networks, before.networks);
    EXPECT_EQ(after.weights.made, before.weights.made);
    EXPECT_EQ(after.weights.bytes, before.weights.bytes);
    EXPECT_GT(after.weights.remade, before.weights.remade);
    // Repeating it recomputes nothing.
    latents(*model);
    EXPECT_EQ(model->kept().counters().weights.remade, after.weights.remade);
  }
}

// A quantised matrix takes much memory when it is asked for, and its branch needs only its shape.
TEST_F(LoraPictures, BranchesReadNothingOfTheModel) {
  class Noted : public WeightSource {
   public:
    explicit Noted(std::vector<std::string>& asked) : asked_(asked) {}
    HostView find(const std::string& name) const override {
      asked_.push_back(name);
      return {DType::F32, {2, 3}, nullptr};
    }

   private:
    std::vector<std::string>& asked_;
  };
  const auto config = fixtures::tiny_stable_diffusion();
  LoraSet set([&] { return stable_diffusion_lora_names(config); }, options(LoraApply::Side));
  const std::set<std::string> beside = *set.branches().weights;
  int64_t matrices = 0;
  for (const char* component : {"unet", "text_encoder"}) {
    std::vector<std::string> asked;
    const auto source = set.over(component, std::make_unique<Noted>(asked));
    const WeightShapes weights = expected_weights(config).at(component);
    for (const auto& [weight, shape] : weights) {
      if (!beside.contains(weight)) continue;
      const std::string down = nn::side_down(weight), up = nn::side_up(weight);
      EXPECT_EQ(source->find(down).shape, (Shape{8, shape[1]})) << weight;
      EXPECT_EQ(source->find(up).shape, (Shape{shape[0], 8})) << weight;
      source->done(down);
      source->done(up);
      ++matrices;
    }
    EXPECT_THAT(asked, testing::IsEmpty());
    source->find("conv_in.lora_A.weight");  // beside a filter there is no branch
    EXPECT_THAT(asked, testing::ElementsAre("conv_in.lora_A.weight"));
  }
  EXPECT_EQ(matrices, std::ssize(beside));
}

TEST_F(LoraPictures, BranchesCostAtMostTwoLaunchesAProduct) {
  const auto model = dit(options(LoraApply::Merge));
  LoraSet set([&] { return model->model().lora_names(); }, options(LoraApply::Side));
  const ZImageShape shape{.height = 4, .width = 6};
  const NetworkOptions plain{.precision = nn::kBf16};
  NetworkOptions side = plain;
  side.side = set.branches();
  const Plan without = plan_transformer(model->model(), shape, plain);
  const Plan with = plan_transformer(model->model(), shape, side);
  const auto products = [](const Plan& plan) {
    return std::ranges::count(plan.phase(Rate::Step)->launches, "gemm", &Launch::skeleton);
  };
  EXPECT_GE(products(with), 2 * products(without));
  EXPECT_LE(products(with), 3 * products(without));
  // Little more than products is added.
  EXPECT_LE(counts_of(with).total - products(with), counts_of(without).total - products(without) + 1);
}

// Rows are requantised with the change included, or the branch runs in bf16 beside them.
TEST_F(LoraPictures, InRowsOfE4m3) {
  for (const LoraApply apply : {LoraApply::Merge, LoraApply::Side}) {
    const auto reference = latents(*dit(options(LoraApply::Merge, DType::BF16)), {use("z-image")});
    const auto model = dit(options(apply, DType::E4M3));
    const auto plain = latents(*model), with = latents(*model, {use("z-image")});
    EXPECT_EQ(latents(*model), plain);
    const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
      return sum;
    };
    EXPECT_LT(distance(with, reference), 0.5 * distance(plain, reference));
  }
}

TEST_F(LoraPictures, NamedInPrompts) {
  const auto model = sd(options(LoraApply::Merge));
  ImageRequest r = request(false);
  const std::string prompt = r.prompt;
  r.prompt = "<LoRA:kohya:0.5> " + prompt;
  const ImageRequest complete = model->complete(r);
  EXPECT_EQ(complete.prompt, prompt);
  ASSERT_EQ(complete.loras.size(), 1U);
  r.decode = true;
  const ImageResult result = model->generate(r);
  EXPECT_EQ(result.latents, latents(*model, {use("kohya", 0.5)}));
  const auto about = picture_json(result, 0);
  EXPECT_EQ(about.at("loras").at(0).at("file"), "kohya.safetensors");
  EXPECT_EQ(about.at("loras").at(0).at("weight"), 0.5);
  EXPECT_EQ(about.at("loras").at(0).at("sha256").get<std::string>().size(), 64U);
  EXPECT_FALSE(about.contains("lora_apply") || about.contains("fusion"));
  PipelineOptions other = options(LoraApply::Side);
  other.fusion = false;
  const auto beside = picture_json(sd(other)->generate(r), 0);
  EXPECT_EQ(beside.at("lora_apply"), "side");
  EXPECT_EQ(beside.at("fusion"), false);
  const ImageText text = picture_text(result, 0, {"tiny", ""}, {"1", ""});
  EXPECT_THAT(text.at(0).second, testing::StartsWith(prompt + " <lora:kohya:0.5>\n"));
  // Of what follows the header, as the web UI computes it.
  std::ifstream file(use("kohya").file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string hash = sha256_hex(std::as_bytes(std::span(bytes).subspan(8 + header)));
  EXPECT_THAT(text.at(0).second, HasSubstr("Lora hashes: \"kohya: " + hash.substr(0, 12) + "\","));
  // One in a folder, as `train lora` writes it, has the folder's name.
  ImageResult of_folder = result;
  of_folder.request.loras.at(0).file = folder / "run" / kLoraFiles[0];
  const std::string named = picture_text(of_folder, 0, {"tiny", ""}, {"1", ""}).at(0).second;
  EXPECT_THAT(named, testing::StartsWith(prompt + " <lora:run:0.5>\n"));
  EXPECT_THAT(named, HasSubstr("Lora hashes: \"run: " + hash.substr(0, 12) + "\","));
  EXPECT_THAT(text.at(0).second, HasSubstr(", Model: tiny,"));
  EXPECT_THAT(picture_text(result, 0, {"sd.v1.safetensors", ""}, {"1", ""}).at(0).second, HasSubstr(", Model: sd.v1,"));
}

TEST_F(LoraPictures, WrongOnes) {
  const auto refused = [](ImageGenerator& model, const std::vector<LoraUse>& loras, const std::string& prompt = "a") {
    ImageRequest r = request(dynamic_cast<ZImageGenerator*>(&model) != nullptr, loras);
    r.prompt = prompt;
    try {
      model.generate(r);
    } catch (const Error& e) {
      return std::to_string(e.exit_code()) + " " + e.what();
    }
    return std::string("drawn");
  };
  const auto merged = sd(options(LoraApply::Merge)), side = sd(options(LoraApply::Side));
  EXPECT_THAT(refused(*merged, {use("z-image")}), testing::StartsWith("3 "));
  EXPECT_THAT(refused(*merged, {use("none")}), HasSubstr("none.safetensors"));
  EXPECT_THAT(refused(*merged, {use("kohya"), use("kohya", 2)}), HasSubstr("named twice"));
  EXPECT_THAT(refused(*merged, {use("kohya")}, "a <lora:kohya>"), HasSubstr("named twice"));
  EXPECT_THAT(refused(*merged, {use("kohya", NAN)}), HasSubstr("a number from -10000"));
  EXPECT_THAT(refused(*merged, {use("kohya", -1e30)}), HasSubstr("a number from -10000 to 10000, got -1e+30"));
  EXPECT_THAT(refused(*merged, {}, "a <lora:kohya:1e30>"), HasSubstr("<lora:kohya>] a LoRA's weight must be"));
  EXPECT_THAT(refused(*merged, {}, "a <lora:../sd/x:1>"), HasSubstr("folder of LoRAs"));
  EXPECT_THAT(refused(*merged, {}, "a <lora:x:1>"), testing::StartsWith("3 "));
  fs::create_directory(folder / "empty");
  EXPECT_THAT(refused(*merged, {}, "a <lora:empty:1>"),
              testing::AllOf(testing::StartsWith("3 "), HasSubstr("/empty] is a folder, expected a LoRA file")));
  EXPECT_THAT(refused(*merged, {}, "a <lora:kohya:much>"), HasSubstr("number as weight"));
  EXPECT_THAT(refused(*side, {use("diffusers")}), HasSubstr("cannot be applied as a side branch"));
  fs::copy_file(folder / "kohya.safetensors", folder / "again.safetensors", fs::copy_options::overwrite_existing);
  fs::copy_file(folder / "kohya.safetensors", folder / "third.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(*side, {use("kohya"), use("again"), use("third")}), HasSubstr("needs a rank of 12"));
  // What can never fit is reported when it is read.
  PipelineOptions narrow = options(LoraApply::Side);
  narrow.lora_rank = 3;
  const auto loads = [&](const PipelineOptions& o, const LoraUse& lora) {
    try {
      return sd(o)->load_lora(lora).str();
    } catch (const Error& e) {
      return std::to_string(e.exit_code()) + " " + e.what();
    }
  };
  EXPECT_THAT(loads(narrow, use("kohya")),
              testing::StartsWith("2 [" + use("kohya").file.string() + "] needs a rank of 4"));
  EXPECT_THAT(loads(narrow, use("kohya")),
              HasSubstr("', but side branches have rank 3; raise --lora-rank (in Python lora_rank)"));
  EXPECT_THAT(loads(narrow, use("kohya", 0)), HasSubstr("rank 4"));
  EXPECT_THAT(loads(options(LoraApply::Side), use("diffusers")), HasSubstr("cannot be applied as a side branch"));
  // Nothing of what was refused remains.
  EXPECT_EQ(latents(*merged), latents(*sd(options(LoraApply::Merge))));
}

}  // namespace
}  // namespace tenon
