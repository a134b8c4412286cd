// Z-Image from a folder to pictures, against diffusers and transformers on the same hash weights
// (tools/fixtures/z_image.py), and errors about invalid folders and requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tenon/pipelines/families/z_image/guidance.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/pipelines/samplers/sampler.h"
#include "tests/pipelines/z_image_fixture.h"
#include "tests/support/close.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;
using fixtures::z_image_recorded;

std::vector<double> z_image_tensor(const std::string& name) {
  static const SafetensorsFile file = SafetensorsFile::open(fixtures::z_image_fixture("z_image.safetensors"));
  const TensorView& t = file.at(name);
  std::vector<double> out;
  for (int64_t i = 0; i < t.shape.numel(); ++i) out.push_back(load_element(t.dtype, t.data, i));
  return out;
}

// Every stride-th element equals the reference's, within `tolerance` of the largest.
void expect_recorded(const nlohmann::json& c, const std::string& tensor, const std::vector<float>& found,
                     double tolerance) {
  const nlohmann::json& what = c["expect"][tensor];
  int64_t n = 1;
  for (const auto& d : what["shape"]) n *= d.get<int64_t>();
  ASSERT_EQ(static_cast<int64_t>(found.size()), n) << c["name"] << " " << tensor;
  const std::vector<double> all(found.begin(), found.end());
  EXPECT_TRUE(close_to_largest(every(all, what["stride"].get<size_t>()),
                               z_image_tensor(c["name"].get<std::string>() + "/" + tensor), tolerance))
      << c["name"] << " " << tensor;
}

// Pixels floor(256 (u + 0.5)) of u(55, i).
Image init_picture(int64_t width, int64_t height) {
  Image out{width, height, 3, {}};
  for (uint32_t i = 0; i < static_cast<uint32_t>(width * height * 3); ++i)
    out.pixels.push_back(static_cast<uint8_t>((fixtures::u(55, i) + 0.5) * 256));
  return out;
}

template <class F>
void for_each_case(const std::string& kind, F&& f) {
  for (const auto& c : z_image_recorded()["cases"])
    if (c["kind"] == kind) f(c);
}

TEST_F(ZImageFolder, TextFeatures) {
  const auto model = ZImageModel::open(path.string());
  for_each_case("text", [&](const nlohmann::json& c) {
    const auto want = c["ids"].get<std::vector<int32_t>>();
    std::vector<int32_t> ids = model->tokens(c["prompt"].get<std::string>());
    EXPECT_EQ(ids.size() > want.size(), want.size() == static_cast<size_t>(kZImageTextTokens));
    ids.resize(std::min<size_t>(ids.size(), kZImageTextTokens));
    ASSERT_EQ(ids, want);
    const int64_t rows = text_rows(static_cast<int64_t>(ids.size()));
    ids.resize(static_cast<size_t>(rows));
    NetworkOptions options;
    options.precision = nn::kF32;
    Executable e(plan_text(*model, 1, rows, options), make_backend("cpu"), *model->weights("text_encoder"));
    e.set("tokens", HostView{DType::I32, {1, rows}, ids.data()});
    e.run_all();
    std::vector<float> hidden = e.get("hidden");
    hidden.resize(want.size() * static_cast<size_t>(model->text().width));
    expect_recorded(c, "out", hidden, 1e-4);
  });
}

TEST_F(ZImageFolder, WholePictures) {
  for_each_case("picture", [&](const nlohmann::json& c) {
    edit("scheduler/scheduler_config.json", [&](nlohmann::json& s) { s["shift"] = c["shift"]; });
    const auto generator = open();
    ImageRequest r;
    r.prompts = c["prompts"].get<std::vector<std::string>>();
    if (r.prompts.size() == 1) {
      r.prompt = r.prompts[0];
      r.prompts.clear();
    }
    r.sampler = c["sampler"];
    r.negative = c["negative_prompt"];
    r.cfg_scale = c["cfg_scale"];
    r.steps = c["steps"];
    r.width = c["width"];
    r.height = c["height"];
    const auto seeds = c["seeds"].get<std::vector<uint64_t>>();
    r.seed = seeds.front();
    r.batch = static_cast<int64_t>(seeds.size());
    if (c.contains("strength")) {
      r.picture = init_picture(r.width, r.height);
      r.strength = c["strength"];
    }
    int calls = 0;
    const ImageResult result = generator->generate(r, [&](const Progress& p) {
      expect_recorded(c, "latents." + std::to_string(p.step - 1), {p.latents.begin(), p.latents.end()}, 1e-4);
      EXPECT_NEAR(p.timestep, 1000 * c["sigmas"][static_cast<size_t>(p.step - 1)].get<double>(), 1e-3);
      ++calls;
    });
    EXPECT_EQ(calls, static_cast<int>(c["sigmas"].size()) - 1);
    ASSERT_EQ(result.images.size(), seeds.size());
    std::vector<float> pixels;  // as in the reference, [B,3,H,W]
    for (const Image& image : result.images)
      for (int64_t channel = 0; channel < 3; ++channel)
        for (size_t i = 0; i < image.pixels.size() / 3; ++i)
          pixels.push_back(static_cast<float>(image.pixels[3 * i + static_cast<size_t>(channel)]) / 255.0f);
    expect_recorded(c, "image", pixels, 0.5 / 255 + 1e-4);
  });
}

// diffusers' ZImagePipeline: pos + g (pos - neg), then shortened to r |pos| if longer; only pos late in the schedule.
TEST(ZImageGuidance, NormalisedAndTruncated) {
  const std::vector<float> predictions{3, 4, 1, 0, /* negative: */ 0, 0, 1, 1};  // of two images
  EXPECT_EQ(guided(predictions, 2, {.scale = 1}, 0.5), (std::vector<float>{3, 4, 1, 0}));
  EXPECT_EQ(guided(predictions, 2, {.scale = 3}, 0.5), (std::vector<float>{9, 12, 1, -2}));
  const std::vector<float> shortened = guided(predictions, 2, {.scale = 3, .normalization = 1}, 0.5);
  const std::vector<double> want{3, 4, 1 / std::sqrt(5.0), -2 / std::sqrt(5.0)};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(shortened[i], want[i], 1e-6);
  EXPECT_EQ(guided(predictions, 2, {.scale = 3, .normalization = 3}, 0.5), (std::vector<float>{9, 12, 1, -2}));
  EXPECT_EQ(guided(predictions, 2, {.scale = 3, .truncation = 0.5}, 0.5), (std::vector<float>{9, 12, 1, -2}));
  EXPECT_EQ(guided(predictions, 2, {.scale = 3, .truncation = 0.4}, 0.5), (std::vector<float>{3, 4, 1, 0}));
}

TEST_F(ZImageFolder, GuidanceIsNormalisedAndTruncated) {
  const auto generator = open();
  ImageRequest r;
  r.prompt = "a red circle";
  r.negative = "blue";
  r.cfg_scale = 5;
  r.width = r.height = 32;
  r.steps = 3;
  const auto first_steps = [&] {
    std::vector<std::vector<float>> out;
    generator->generate(r, [&](const Progress& p) { out.emplace_back(p.latents.begin(), p.latents.end()); });
    return out;
  };
  const auto plain = first_steps();
  r.cfg_normalization = 0.5;
  EXPECT_NE(first_steps()[0], plain[0]);
  r.cfg_normalization = 0;
  r.cfg_truncation = 0;
  const auto truncated = first_steps();
  EXPECT_EQ(truncated[0], plain[0]) << "at time 0";
  EXPECT_NE(truncated[1], plain[1]);
  for (const double bad : {-0.1, 1.5, std::nan("")}) {
    r.cfg_truncation = bad;
    EXPECT_THROW(generator->complete(r), Error) << bad;
  }
  r.cfg_truncation = 1;
  r.cfg_normalization = -1;
  EXPECT_THROW(generator->complete(r), Error);
}

// A picture is the same whatever else is in the batch.
TEST_F(ZImageFolder, ABatchIsItsPictures) {
  const auto generator = open();
  ImageRequest r;
  r.prompt = "a red circle";
  r.negative = "blue blue blue blue blue blue blue blue blue blue blue blue blue blue blue blue";
  r.cfg_scale = 3;
  r.width = r.height = 32;
  r.steps = 2;
  r.batch = 2;
  r.seed = 11;
  const std::vector<Image> both = generator->generate(r).images;
  r.batch = 1;
  EXPECT_EQ(generator->generate(r).images.at(0), both.at(0));
  r.seed = 12;
  EXPECT_EQ(generator->generate(r).images.at(0), both.at(1));
}

// Mean distance of the latents from those in f32, relative to the largest.
TEST_F(ZImageFolder, FewerBitsStayNear) {
  ImageRequest r;
  r.prompt = "a red circle";
  r.width = r.height = 32;
  r.steps = 4;
  const std::vector<float> exact = open()->generate(r).latents;
  const auto apart = [&](DType type) {
    const ImageResult rounded = open(type)->generate(r);
    EXPECT_EQ(rounded.type.name(), type);
    double most = 0, sum = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(exact[i])));
      sum += std::abs(static_cast<double>(exact[i] - rounded.latents[i]));
    }
    return sum / static_cast<double>(exact.size()) / most;
  };
  const double bf16 = apart(DType::BF16), e4m3 = apart(DType::E4M3);
  EXPECT_LE(bf16, 0.01);
  EXPECT_LE(e4m3, 0.05);
  EXPECT_GT(e4m3, bf16);
}

// All linear layers of the text encoder are quantised too, as the plan's header says; its embedding lookup is not.
TEST(ZImageText, LinearLayersInE4m3) {
  const auto model = ZImageModel::open("z-image-shapes");
  const auto text_of = [&](bool e4m3) {
    NetworkOptions options;
    if (e4m3) options.policy = NetworkType(DType::E4M3).policy;
    return print_plan(plan_text(*model, 1, 128, options));
  };
  const auto count = [](const std::string& text, const std::string& part) {
    int64_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
    return n;
  };
  EXPECT_NE(text_of(true).find("e4m3 rows"), std::string::npos);
  EXPECT_EQ(count(text_of(true), "linear<e4m3>"), 4 * model->text_layers());  // q|k|v, output, gate|up, down
  EXPECT_EQ(count(text_of(true), "linear<bf16>"), 0);
  EXPECT_EQ(count(text_of(false), "linear<bf16>"), 4 * model->text_layers());
}

TEST_F(ZImageFolder, DefaultsAndRequests) {
  const auto generator = open();
  ImageRequest r;
  r.prompt = "";
  const ImageRequest full = generator->complete(r);
  EXPECT_EQ(full.width, 1024);
  EXPECT_EQ(full.height, 1024);
  EXPECT_EQ(full.steps, 8);
  EXPECT_EQ(full.cfg_scale, 1);
  EXPECT_EQ(full.sampler, "euler");
  EXPECT_THAT(generator->warnings(full, ""), testing::IsEmpty());
  const auto refused = [&](const std::string& what, const std::function<void(ImageRequest&)>& change) {
    ImageRequest bad;
    change(bad);
    try {
      generator->complete(bad);
      ADD_FAILURE() << what;
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::Usage));
      EXPECT_THAT(e.what(), testing::HasSubstr(what));
    }
  };
  refused("[width] 1000 is not a multiple of 16; the nearest is 1008", [](ImageRequest& q) { q.width = 1000; });
  refused("[height] 8 is not a multiple of 16; the nearest is 16", [](ImageRequest& q) { q.height = 8; });
  refused("[height] 8208 is more than 8192", [](ImageRequest& q) { q.height = 8208; });
  refused("cannot do flow matching", [](ImageRequest& q) { q.sampler = "ddim"; });
  refused("Karras noise levels are not supported", [](ImageRequest& q) { q.sampler_options.karras = true; });
  refused("[strength] 0 is outside", [](ImageRequest& q) {
    q.picture = init_picture(16, 16);
    q.strength = 0;
  });
  refused("[init image] is 16x8, expected sides of at least 16 where no width and height are given",
          [](ImageRequest& q) { q.picture = init_picture(16, 8); });
  refused("[latents] cannot be given together", [](ImageRequest& q) {
    q.picture = init_picture(16, 16);
    q.latents.resize(64);
  });
  refused("[prompts] expected one for each of 3 images, got 2", [](ImageRequest& q) {
    q.prompts = {"a", "b"};
    q.batch = 3;
  });
  refused("[flow shift] 0 is outside", [](ImageRequest& q) { q.sampler_options.flow_shift = 0; });
  refused("values", [](ImageRequest& q) { q.latents = {1.0f}; });
}

TEST_F(ZImageFolder, PicturesTakeTheirSize) {
  const auto generator = open();
  ImageRequest r;
  r.picture = init_picture(50, 47);
  const ImageRequest full = generator->complete(r);
  EXPECT_EQ(full.width, 48);
  EXPECT_EQ(full.height, 32);
  ASSERT_TRUE(full.init);
  EXPECT_EQ(full.init->scaled_from, (std::pair<int64_t, int64_t>(50, 47)));
  ImageRequest few = full;
  few.steps = 2;
  few.strength = 0.4;  // 2 - 0.8 steps are skipped, rounded down
  EXPECT_EQ(generator->generate(few).timesteps.size(), 1U);
  r.picture = init_picture(5, 3);  // smaller than the least size of a result: scaled up
  r.width = 48;
  r.height = 32;
  EXPECT_EQ(generator->complete(r).init->scaled_from, (std::pair<int64_t, int64_t>(5, 3)));
}

// Twenty lengths, after each of the four sizes of a text has been used once: nothing is planned, compiled, packed or
// tuned.
TEST_F(ZImageFolder, OtherPromptLengthsPrepareNothing) {
  PipelineOptions o;
  o.type = DType::F32;
  o.keep_networks = true;
  const auto model = ZImageModel::open(path.string());
  ZImageGenerator generator(model, o);
  ImageRequest r;
  r.width = r.height = 16;
  r.steps = 1;
  r.decode = false;
  std::set<size_t> lengths;
  const auto draw = [&](int words) {
    r.prompt.clear();
    for (int i = 0; i < words; ++i) r.prompt += " a";
    lengths.insert(model->tokens(r.prompt).size());
    generator.generate(r);
  };
  for (const int words : {0, 150, 280, 420}) draw(words);
  const KeptNetworks::Counters before = generator.counters();
  EXPECT_EQ(before.prepared, 8);  // text encoder and transformer
  lengths.clear();
  for (int i = 1; i <= 20; ++i) draw(i * 23);
  const KeptNetworks::Counters after = generator.counters();
  EXPECT_EQ(lengths.size(), 20U);
  EXPECT_LE(*lengths.begin(), 64U);
  EXPECT_GE(*lengths.rbegin(), 400U);
  EXPECT_LE(*lengths.rbegin(), 512U);
  EXPECT_EQ(after.prepared, before.prepared);
  EXPECT_EQ(after.weights.made, before.weights.made);
}

TEST_F(ZImageFolder, LongPromptsAreCutWithAWarning) {
  const auto generator = open();
  ImageRequest r;
  for (int i = 0; i < 200; ++i) r.prompt += "seven hundred words of green ";
  EXPECT_THAT(generator->warnings(r, ""), testing::ElementsAre(testing::HasSubstr("reads the first 512")));
  ImageRequest bad;
  bad.prompt = "a\xff";
  EXPECT_THROW(generator->warnings(bad, ""), Error);
}

TEST_F(ZImageFolder, OpensAsAFamily) {
  EXPECT_EQ(family_of(path.string()).name, "z-image");
  EXPECT_NE(open_as<ImageGenerator>(path.string()), nullptr);
  const auto parts = open_parts(path.string());
  EXPECT_EQ(parts->parts().size(), 4U);
  for (const std::string& part : parts->parts()) {
    PartRequest r;
    r.width = 32;
    r.height = 48;
    EXPECT_GT(parts->plan(part, r, {}).phases.size(), 0U) << part;
    EXPECT_NE(parts->weights(part), nullptr);
  }
}

// ---- invalid folders ----

TEST_F(ZImageFolder, AShardIsMissing) {
  fs::remove(path / "transformer/diffusion_pytorch_model-00002-of-00002.safetensors");
  expect_refused(ErrorKind::Model, "diffusion_pytorch_model-00002-of-00002.safetensors");
}

TEST_F(ZImageFolder, AShardIsTruncated) {
  const fs::path shard = path / "transformer/diffusion_pytorch_model-00001-of-00002.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 100);
  expect_refused(ErrorKind::Model, "diffusion_pytorch_model-00001-of-00002.safetensors");
}

TEST_F(ZImageFolder, TheIndexNamesAFileElsewhere) {
  edit("transformer/diffusion_pytorch_model.safetensors.index.json", [](nlohmann::json& index) {
    index["weight_map"]["cap_pad_token"] = "../vae/diffusion_pytorch_model.safetensors";
  });
  expect_refused(ErrorKind::Model, "../vae/diffusion_pytorch_model.safetensors");
}

TEST_F(ZImageFolder, AnIndexWithoutATensor) {
  edit("transformer/config.json", [](nlohmann::json& c) { c["n_layers"] = 3; });
  expect_refused(ErrorKind::Model, " transformer] the weights do not fit the network; 15 missing: layers.2.");
}

TEST_F(ZImageFolder, PartsThatDoNotFit) {
  edit("transformer/config.json", [](nlohmann::json& c) { c["cap_feat_dim"] = 48; });
  expect_refused(ErrorKind::Model, "hidden_size 40 does not match the transformer's cap_feat_dim 48");
  edit("transformer/config.json", [](nlohmann::json& c) { c["cap_feat_dim"] = 40; });
  edit("vae/config.json", [](nlohmann::json& c) { c["latent_channels"] = 4; });
  expect_refused(ErrorKind::Model, "latent_channels 4 do not match the transformer's in_channels 16");
}

TEST_F(ZImageFolder, NoTokenizerNoTemplateAnotherScheduler) {
  fs::rename(path / "tokenizer/chat_template.jinja", path / "kept");
  expect_refused(ErrorKind::Model, "has no chat template");
  fs::rename(path / "tokenizer", path / "words");
  expect_refused(ErrorKind::Model, "has no folder tokenizer/");
  edit("scheduler/scheduler_config.json", [](nlohmann::json& c) { c["_class_name"] = "DDIMScheduler"; });
  expect_refused(ErrorKind::Model, "names the scheduler 'DDIMScheduler'");
  edit("scheduler/scheduler_config.json", [](nlohmann::json& s) {
    s["_class_name"] = "FlowMatchEulerDiscreteScheduler";
    s["num_train_timesteps"] = 500;
  });
  expect_refused(ErrorKind::Model, "num_train_timesteps] is 500, expected 1000");
  fs::remove_all(path / "text_encoder");
  expect_refused(ErrorKind::Model, "has no text_encoder/config.json");
}

TEST(ZImageRandom, PresetsAndParts) {
  const auto parts = open_parts("random:z-image");
  EXPECT_EQ(parts->default_part(), "transformer");
  EXPECT_EQ(parts->describe("transformer", {}), "1024x1024, 128 tokens, batch 1");
  EXPECT_EQ(parameter_count(parts->shapes("vae-decode")), 83'819'683);
  EXPECT_EQ(parameter_count(parts->shapes("text")), 3'921'534'720);
}

TEST_F(ZImageFolder, LongPromptsLoseTheirEnd) {
  std::ofstream(path / "tokenizer/tokenizer_config.json") << R"({"truncation_side": "left"})";
  expect_refused(ErrorKind::Model, R"('truncation_side' is "left", expected "right")");
}

// A text of n rows has frames 1 to n, and the image the next one; diffusers has no angles beyond axes_lens.
TEST_F(ZImageFolder, TextsHavePositions) {
  const auto refused = [&](int64_t frames, const std::string& prompt) {
    edit("transformer/config.json", [&](nlohmann::json& t) { t["axes_lens"][0] = frames; });
    ImageRequest r;
    r.prompt = prompt;
    r.width = r.height = 16;
    r.steps = 1;
    try {
      open()->generate(r);
      return std::string();
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::Usage));
      return std::string(e.what());
    }
  };
  EXPECT_EQ(refused(34, "a"), "");  // 32 rows with the template
  EXPECT_THAT(refused(33, "a"), testing::HasSubstr("32 with padding; the model's axes_lens 33 allows 31"));
  EXPECT_THAT(refused(1, "a"), testing::HasSubstr("axes_lens 1 allows 0"));
}

TEST(FlowMatching, Sigmas) {
  const auto sigmas = [](int steps, double shift) {
    const nlohmann::json config{{"_class_name", "FlowMatchEulerDiscreteScheduler"}, {"shift", shift}};
    const auto sampler = make_sampler("", config);
    sampler->set_steps(steps);
    std::vector<double> out;
    for (int i = 0; i < sampler->calls(); ++i) out.push_back(sampler->noise_level(i).sigma);
    return out;
  };
  const auto near = [](std::vector<double> want) { return testing::Pointwise(testing::DoubleNear(1e-6), want); };
  EXPECT_THAT(sigmas(8, 3), near({1, 0.954545, 0.9, 0.833333, 0.75, 0.642857, 0.5, 0.3}));
  EXPECT_THAT(sigmas(4, 3), near({1, 0.9, 0.75, 0.5}));
  EXPECT_THAT(sigmas(8, 6), near({1, 0.976744, 0.947368, 0.909091, 0.857143, 0.782609, 0.666667, 0.461538}));
  const auto refused = [](const char* key, const nlohmann::json& value) {
    nlohmann::json config{{"_class_name", "FlowMatchEulerDiscreteScheduler"}};
    config[key] = value;
    try {
      make_sampler("euler", config);
      ADD_FAILURE() << key;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(key));
    }
  };
  const auto levels = [](const char* sampler, double strength, std::optional<double> shift) {
    const nlohmann::json config{{"_class_name", "FlowMatchEulerDiscreteScheduler"}, {"shift", 3}};
    const auto s = make_sampler(sampler, config, {{}, {}, shift});
    s->set_steps(8, strength);
    return std::pair(s->calls(), s->noise_level(0).sigma);
  };
  EXPECT_EQ(levels("euler", 0.6, {}).first, 5);  // 8 - 4.8 steps are skipped, rounded down
  EXPECT_EQ(levels("dpm++2m", 0.6, {}).first, 5);
  EXPECT_EQ(levels("euler", 1, {}).first, 8);
  EXPECT_NEAR(levels("dpm++2m", 0.5, 6).second, 0.857143, 1e-6);
  refused("use_dynamic_shifting", true);
  refused("shift_terminal", 0.1);
  refused("shift", 0);
  refused("stochastic_sampling", true);
  refused("use_karras_sigmas", true);
  try {
    const nlohmann::json heun = nlohmann::json::object({{"_class_name", "FlowMatchHeunDiscreteScheduler"}});
    make_sampler("", heun);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("name one of these samplers: dpm++2m, euler)"));
  }
}

}  // namespace
}  // namespace tenon
