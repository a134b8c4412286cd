// LoRAs of models that draw: the loss and its conventions, gradients of A and B, the effect of a step, reading back.
#include "tenon/train/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numbers>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/io/random.h"
#include "tenon/io/safetensors.h"
#include "tenon/pipelines/lora_source.h"
#include "tenon/train/adapter.h"
#include "tenon/train/denoising.h"
#include "tenon/train/ovals.h"
#include "tenon/train/updater.h"
#include "tests/fixtures/z_image_folder.h"
#include "tests/language/language_fixtures.h"
#include "tests/support/close.h"

namespace tenon::train {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int64_t kSide = 64;

std::unique_ptr<TrainableDenoiser> open_denoiser(const std::string& spec, DType type = DType::F32) {
  return open_as<TrainableDenoiser>(spec, {.backend = make_backend("cpu"), .type = type, .parts = {}});
}

template <class F>
void expect_refused_lora(ErrorKind kind, const std::string& part, const F& f) {
  try {
    f();
    ADD_FAILURE() << "expected: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(part));
  }
}

// ---- noise levels and the loss ----

TEST(Timesteps, DensitiesAndWeights) {
  const auto u = [](Density d, double uniform, double normal) { return density_u({.density = d}, uniform, normal); };
  EXPECT_EQ(u(Density::Uniform, 0.3, 9), 0.3);
  EXPECT_DOUBLE_EQ(u(Density::LogitNormal, 0.3, 0), 0.5);
  EXPECT_DOUBLE_EQ(density_u({.density = Density::LogitNormal, .logit_mean = 1, .logit_std = 2}, 0, 0.5),
                   1 / (1 + std::exp(-2.0)));
  EXPECT_NEAR(u(Density::Mode, 0.5, 0), 0.5, 1e-15);  // a fixed point
  EXPECT_NEAR(u(Density::Mode, 0, 0), 1, 1e-15);
  EXPECT_NEAR(u(Density::Mode, 1, 0), 0, 1e-15);
  const auto weight = [](Density d, double sigma) {
    return loss_weight({.density = d}, nn::DenoisingTarget::Flow, {1 - sigma, sigma, 1 - sigma});
  };
  EXPECT_DOUBLE_EQ(weight(Density::Cosmap, 0.5), 4 / std::numbers::pi);
  EXPECT_DOUBLE_EQ(weight(Density::SigmaSqrt, 0.5), 4);
  EXPECT_DOUBLE_EQ(weight(Density::Uniform, 0.5), 1);
  const std::vector<TrainingLevel> levels{{0, 1, 0}, {0.5, 0.5, 0.5}, {0.9, 0.1, 0.9}};
  EXPECT_EQ(level_at(levels, 0).noise, 1);
  EXPECT_EQ(level_at(levels, 0.34).noise, 0.5);
  EXPECT_EQ(level_at(levels, 1).noise, 0.1);  // result of a saturated sigmoid
}

TEST(Timesteps, MinSnr) {
  const TrainingLevel noisy{std::sqrt(0.1), std::sqrt(0.9), 900}, clean{std::sqrt(0.9), std::sqrt(0.1), 100};
  const TimestepOptions o{.snr_gamma = 5};
  EXPECT_DOUBLE_EQ(loss_weight(o, nn::DenoisingTarget::Noise, noisy), 1);
  EXPECT_NEAR(loss_weight(o, nn::DenoisingTarget::Noise, clean), 5.0 / 9, 1e-12);
  EXPECT_NEAR(loss_weight(o, nn::DenoisingTarget::Velocity, clean), 5.0 / 10, 1e-12);
  EXPECT_NEAR(loss_weight(o, nn::DenoisingTarget::Sample, clean), 5.0, 1e-12);
  EXPECT_THROW(check_timesteps(o, nn::DenoisingTarget::Flow), Error);
  EXPECT_THROW(check_timesteps({.density = Density::Mode}, nn::DenoisingTarget::Noise), Error);
  EXPECT_THROW(check_timesteps({.density = Density::Mode, .mode_scale = 2}, nn::DenoisingTarget::Flow), Error);
  EXPECT_THROW(density_of("cosine"), Error);
}

double value_of(const Expr& loss, const std::map<std::string, std::vector<float>>& inputs) {
  Executable e(make_plan(std::vector<Result>{{"loss", loss}}), make_backend("cpu"), HostWeights());
  for (const auto& [name, values] : inputs)
    if (std::ranges::find(e.plan().buffers, name, &Buffer::name) != e.plan().buffers.end())
      e.set(name, std::span<const float>(values));
  e.run_all();
  return static_cast<double>(e.get("loss")[0]);
}

// A network that outputs the convention's target has no loss; one that outputs zero has the target's variance.
TEST(DenoisingLoss, KnowsWhatItAsksFor) {
  const Shape images{2, 4, 16, 16}, one{2, 1, 1, 1};
  std::map<std::string, std::vector<float>> in;
  TorchGenerator random(3);
  for (const char* name : {"x0", "noise"}) random.randn(in[name] = std::vector<float>(2048));
  for (float& x : in["x0"]) x *= 0.5F;
  in["a"] = {0.8F, 0.6F};
  in["s"] = {0.6F, 0.8F};
  in["w"] = {1, 1};
  const auto loss = [&](nn::DenoisingTarget kind, bool knows) {
    Graph g;
    const auto leaf = [&](const char* name, const Shape& s) { return input(g, name, DType::F32, s); };
    const Expr x0 = leaf("x0", images), noise = leaf("noise", images);
    const nn::NoiseShares shares{leaf("a", one), leaf("s", one)};
    const Expr x = nn::noised(x0, noise, shares), target = nn::denoising_target(kind, x0, noise, shares);
    Expr said = x * 0.0;
    if (knows && kind == nn::DenoisingTarget::Flow) said = -(x0 - noise);  // as Z-Image's, including the sign
    if (knows && kind == nn::DenoisingTarget::Noise) said = (x - x0 * shares.picture) / shares.noise;
    if (knows && kind == nn::DenoisingTarget::Velocity) said = (noise - x * shares.noise) / shares.picture;
    return value_of(nn::denoising_loss(said, target, leaf("w", {2})), in);
  };
  EXPECT_EQ(loss(nn::DenoisingTarget::Flow, true), 0);
  EXPECT_NEAR(loss(nn::DenoisingTarget::Noise, true), 0, 1e-12);
  EXPECT_NEAR(loss(nn::DenoisingTarget::Velocity, true), 0, 1e-12);
  EXPECT_NEAR(loss(nn::DenoisingTarget::Flow, false), 1 + 0.25, 0.1);  // 1 + the variance of x0
  EXPECT_NEAR(loss(nn::DenoisingTarget::Noise, false), 1, 0.1);
  in["w"] = {4, 0};
  EXPECT_NEAR(loss(nn::DenoisingTarget::Noise, false), 2, 0.2);
}

TEST(DenoiserLayout, ZImageAsPublished) {
  const auto model = open_denoiser("random:z-image");
  const DenoiserTraining t = model->training({});
  ASSERT_EQ(t.levels.size(), 1000U);
  EXPECT_EQ(t.target, nn::DenoisingTarget::Flow);
  EXPECT_FALSE(t.draws_latents);
  EXPECT_FALSE(open_denoiser("z-image-shapes")->training({}).distilled);  // the same shift, but guided
  EXPECT_EQ(t.levels.front().noise, 1);
  EXPECT_EQ(t.levels.front().time, 0);            // the network's time runs from noise to picture
  EXPECT_NEAR(t.levels[500].noise, 0.75, 1e-12);  // a shift of 3 at one half
  EXPECT_NEAR(t.levels[500].time, 0.25, 1e-12);
  EXPECT_NEAR(model->training(1.0).levels[500].noise, 0.5, 1e-12);
  const WeightShapes shapes = model->shapes();
  const WeightShapes leaves = branch_shapes(shapes, target_weights(shapes, attention_targets()), 4);
  EXPECT_EQ(leaves.size(), 272U);
  EXPECT_EQ(parameter_count(leaves), 4'177'920);
}

TEST(DenoiserLayout, StableDiffusion) {
  const auto model = open_denoiser("random:sd15");
  const DenoiserTraining t = model->training({});
  ASSERT_EQ(t.levels.size(), 1000U);
  EXPECT_EQ(t.target, nn::DenoisingTarget::Noise);
  EXPECT_EQ(t.levels.front().time, 999);
  EXPECT_NEAR(t.levels.front().picture, 0.06826, 1e-4);
  EXPECT_NEAR(std::hypot(t.levels[300].picture, t.levels[300].noise), 1, 1e-7);
  EXPECT_THROW(model->training(3.0), Error);
  const WeightShapes shapes = model->shapes();
  EXPECT_EQ(target_weights(shapes, attention_targets()).size(), 128U);  // 16 blocks, two attentions
  EXPECT_GT(target_weights(shapes, {kAllLinear}).size(), 128U);
  EXPECT_EQ(target_weights(shapes, {"attn2.to_k"}).size(), 16U);
  expect_refused_lora(ErrorKind::Usage, "'q_proj'; expected ", [&] { target_weights(shapes, {"to_q", "q_proj"}); });
  expect_refused_lora(ErrorKind::Usage, "'o_q'", [&] { target_weights(shapes, {"o_q"}); });  // not within a word
}

// ---- gradients ----

// The embedded model, or the tiny Z-Image, with a batch and its adapters.
struct Bench {
  std::unique_ptr<TrainableDenoiser> model;
  PictureSet pictures;
  DenoisingData data;
  DenoisingShape shape;
  nn::SideBranches branches;
  WeightShapes leaves;

  Bench(const std::string& spec, const std::vector<std::string>& targets, int64_t batch, double scale = 1)
      : model(open_denoiser(spec)) {
    std::vector<CaptionedPicture> all = ovals();
    all.resize(3);
    pictures = encode_pictures(*model, DType::F32, all, {{{kSide, kSide}}}, {});
    model->release_encoders();
    data = {model.get(), &pictures, model->training({}), {}, 5};
    shape = {batch, model->latent_shape(kSide, kSide), 0, pictures.texts[0].width};
    for (const TextFeatures& t : pictures.texts)
      shape.text_rows = std::max(shape.text_rows, model->padded_rows(t.rows));
    const WeightShapes shapes = model->shapes();
    branches = {3, std::make_shared<const std::set<std::string>>(target_weights(shapes, targets)), scale};
    leaves = branch_shapes(shapes, *branches.weights, 3);
  }
  template <class To>
  void give(To& to) const {
    DenoisingBatch batch(data, shape);
    for (int64_t i = 0; i < shape.batch; ++i) batch.add(static_cast<size_t>(i), 77 + static_cast<uint64_t>(i));
    batch.give(to);
  }
  double base_loss(const std::shared_ptr<const WeightSource>& weights) const {
    Graph g;
    PlanOptions o;
    o.fold_scales = o.merge_siblings = false;
    Executable e(
        make_plan(std::vector<Result>{{"loss", denoising_loss(g, *model, shape, data.training.target, {}, nn::kF32)}},
                  o),
        std::make_shared<WeightStore>(make_backend("cpu"), weights));
    give(e);
    e.run_all();
    return static_cast<double>(e.get("loss")[0]);
  }
};

void set_random(Parameters& parameters, double scale) {
  uint64_t number = 0;
  for (const Parameter& p : parameters.all()) {
    std::vector<float> values(static_cast<size_t>(p.count()));
    TorchGenerator(++number).randn(values);
    for (float& v : values) v *= static_cast<float>(scale);
    parameters.set(p.master, values);
  }
  parameters.publish();
}

void expect_step_zero(const Bench& b) {
  const auto source = with_new_adapter(b.model->weights(), b.leaves, 1);
  Parameters parameters(make_backend("cpu"), source, b.leaves, 2);
  Graph g;
  Gradients gradients(parameters, adapter_gradients(g, *b.model, b.shape, b.data.training.target, b.branches, nn::kF32),
                      {.merge_siblings = false});
  b.give(gradients);
  EXPECT_EQ(gradients.run(), b.base_loss(b.model->weights()));  // bit for bit
  std::map<std::string, std::vector<float>> before;
  for (const Parameter& p : parameters.all()) {
    const std::vector<float> d = parameters.values(p.grad, p.count());
    const bool none = std::ranges::all_of(d, [](float x) { return x == 0; });
    EXPECT_EQ(none, p.name.ends_with(".lora_A.weight")) << p.name;
    before[p.name] = parameters.values(p.master, p.count());
  }
  // The first update moves every B, and A only by its decay; the next one moves all of both.
  Updater updater(parameters, make_optimizer("adamw", parameters.backend(), {-1, -1, -1, 0}), 1);
  for (int step = 0; step < 2; ++step) {
    if (step > 0) gradients.run();
    updater.step(1e-4);
    int64_t changed = 0, all = 0;
    for (const Parameter& p : parameters.all()) {
      const std::vector<float> now = parameters.values(p.master, p.count());
      const bool moves = step > 0 || p.name.ends_with(".lora_B.weight");
      for (size_t i = 0; i < now.size(); ++i) {
        EXPECT_TRUE(moves || now[i] == before[p.name][i]) << p.name;
        changed += moves && now[i] != before[p.name][i];
      }
      all += moves ? p.count() : 0;
      before[p.name] = now;
    }
    EXPECT_GT(static_cast<double>(changed) / static_cast<double>(all), 0.95) << step;  // in bf16 most would stay
  }
}

// dA and dB of all numbers at once, along a random direction, by central differences; and B A merged into the weights.
void expect_gradients(const Bench& b, double tolerance) {
  Parameters parameters(make_backend("cpu"), with_new_adapter(b.model->weights(), b.leaves, 1), b.leaves, 0);
  set_random(parameters, 0.05);
  Graph g;
  Gradients gradients(parameters, adapter_gradients(g, *b.model, b.shape, b.data.training.target, b.branches, nn::kF32),
                      {.merge_siblings = false});
  b.give(gradients);
  const double loss = gradients.run();
  // Along the gradient plus some random direction; of A's or of B's, by the end of the name.
  std::map<std::string, std::vector<float>> at, direction;
  std::map<std::string, double> squares, slope;
  const auto end_of = [](const Parameter& p) { return p.name.substr(p.name.rfind(".lora")); };
  for (const Parameter& p : parameters.all())
    for (const float d : parameters.values(p.grad, p.count())) squares[end_of(p)] += static_cast<double>(d * d);
  uint64_t number = 1000;
  for (const Parameter& p : parameters.all()) {
    at[p.name] = parameters.values(p.master, p.count());
    const std::vector<float> d = parameters.values(p.grad, p.count());
    std::vector<float>& way = direction[p.name] = std::vector<float>(d.size());
    TorchGenerator(++number).randn(way);
    const double length = std::sqrt(squares[end_of(p)]), count = static_cast<double>(parameters.count());
    for (size_t i = 0; i < d.size(); ++i) {
      way[i] =
          static_cast<float>(0.3 * static_cast<double>(way[i]) / std::sqrt(count) + static_cast<double>(d[i]) / length);
      slope[end_of(p)] += static_cast<double>(d[i]) * static_cast<double>(way[i]);
    }
  }
  for (const auto& [end, want] : slope) {
    const auto moved = [&, e = end](double by) {
      for (const Parameter& p : parameters.all()) {
        std::vector<float> values = at[p.name];
        for (size_t i = 0; i < values.size() && p.name.ends_with(e); ++i)
          values[i] += static_cast<float>(by) * direction[p.name][i];
        parameters.set(p.master, values);
      }
      parameters.publish();
      return gradients.run();
    };
    constexpr double kStep = 1e-2;
    const double got = (moved(kStep) - moved(-kStep)) / (2 * kStep);
    EXPECT_NEAR(got, want, tolerance * std::abs(want)) << end;
  }
  auto terms = std::make_shared<LoraTerms>();
  for (const std::string& weight : *b.branches.weights) {
    auto m = std::make_shared<LoraMatrix>();
    const Shape s = b.model->shapes().at(weight);
    *m = {.rows = s[0],
          .columns = s[1],
          .scale = b.branches.scale,
          .rank = 3,
          .down = at[nn::side_down(weight)],
          .up = at[nn::side_up(weight)]};
    (*terms)[b.model->component()][weight].push_back({m, 0, 1});
  }
  EXPECT_NEAR(b.base_loss(merged_loras(b.model->component(), b.model->weights(), terms)), loss, 2e-5 * loss);
}

TEST(DenoiserLora, StableDiffusionBeginsAsTheModel) {
  expect_step_zero(Bench("default-model", attention_targets(), 2));
}
TEST(DenoiserLora, StableDiffusionGradients) { expect_gradients(Bench("default-model", {kAllLinear}, 2, 0.5), 0.02); }

class TinyZImage : public testing::Test {
 protected:
  TinyZImage() { fixtures::write_z_image(folder_.path()); }
  std::string spec() const { return folder_.path().string(); }
  language_test::Folder folder_;
};

// Gradients in another arithmetic point in the same direction as in f32: the cosine between them.
TEST_F(TinyZImage, GradientsInFewerBits) {
  const Bench b(spec(), {kAllLinear}, 2);
  const auto gradients_in = [&](DType type) {
    const nn::Precision p = type == DType::F32 ? nn::kF32 : nn::kBf16;
    Parameters parameters(make_backend("cpu"), with_new_adapter(b.model->weights(), b.leaves, 1), b.leaves, 0);
    set_random(parameters, 0.05);
    Graph g;
    Gradients gradients(parameters, adapter_gradients(g, *b.model, b.shape, b.data.training.target, b.branches, p),
                        {.precision = training_precision(*b.model, type, b.branches), .merge_siblings = false});
    const std::string plan = print_plan(gradients.plan());
    EXPECT_EQ(plan.find("linear<e4m3>") != std::string::npos, type == DType::E4M3);
    EXPECT_EQ(plan.find("linear<f32>") != std::string::npos, type == DType::F32);
    b.give(gradients);
    std::vector<float> all{static_cast<float>(gradients.run())};
    for (const Parameter& q : parameters.all())
      for (const float d : parameters.values(q.grad, q.count())) all.push_back(d);
    return all;
  };
  const auto cosine = [](const std::vector<float>& x, const std::vector<float>& y) {
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 1; i < x.size(); ++i) {
      const auto a = static_cast<double>(x[i]), c = static_cast<double>(y[i]);
      xy += a * c, xx += a * a, yy += c * c;
    }
    return xy / std::sqrt(xx * yy);
  };
  const std::vector<float> f32 = gradients_in(DType::F32), bf16 = gradients_in(DType::BF16),
                           e4m3 = gradients_in(DType::E4M3);
  EXPECT_NEAR(bf16[0] / f32[0], 1, 0.01);
  EXPECT_NEAR(e4m3[0] / f32[0], 1, 0.05);
  EXPECT_GT(cosine(f32, bf16), 0.999);
  EXPECT_GT(cosine(f32, e4m3), 0.95);
  expect_refused_lora(ErrorKind::Usage, "which layers of",
                      [] { training_precision(*open_denoiser("default-model"), DType::E4M3, {}); });
}
TEST_F(TinyZImage, BeginsAsTheModel) { expect_step_zero(Bench(spec(), attention_targets(), 2)); }
TEST_F(TinyZImage, Gradients) { expect_gradients(Bench(spec(), {kAllLinear}, 2, 0.5), 0.02); }

// ---- pictures ----

class PictureFolder : public testing::Test {
 protected:
  fs::path folder() const { return folder_.path(); }
  void picture(const std::string& name, int64_t width, int64_t height, uint8_t value = 200) const {
    write_png(folder() / name,
              {width, height, 3, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), value)});
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder() / name) << text; }
  language_test::Folder folder_;
};

TEST_F(PictureFolder, PicturesAndCaptions) {
  picture("b.PNG", 30, 20);
  picture("a.png", 20, 30);
  write("b.txt", "\xef\xbb\xbf  a blue thing\r\n");
  write("notes.md", "no picture");
  EXPECT_THROW(read_pictures(folder(), {}), Error);
  const auto all = read_pictures(folder(), "anything");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].caption, "anything");
  EXPECT_EQ(all[1].caption, "a blue thing");
  EXPECT_EQ(all[1].image.width, 30);
  const auto refused = [&](const std::string& part) {
    expect_refused_lora(ErrorKind::Usage, part, [&] { read_pictures(folder(), "anything"); });
  };
  write("c.txt", "alone");
  refused("c.txt");
  fs::remove(folder() / "c.txt");
  write("b.txt", "\xff\xfe");
  refused("not UTF-8");
  write("b.txt", std::string("b\0l\0u\0e\0", 8));  // UTF-16 without a mark
  refused("not UTF-8");
  write("b.txt", "good");
  write("d.jpg", "no picture at all");
  refused("d.jpg");
  fs::remove(folder() / "d.jpg");
  for (const char* unread : {"e.webp", "e.BMP", "b.TXT"}) {
    write(unread, "not looked at");
    refused(unread);
    fs::remove(folder() / unread);
  }
  picture("b.png", 4, 4);
  refused("share one caption");
  expect_refused_lora(ErrorKind::Usage, "nowhere", [&] { read_pictures(folder() / "nowhere", {}); });
  fs::create_directory(folder() / "empty");
  expect_refused_lora(ErrorKind::Usage, "holds no pictures", [&] { read_pictures(folder() / "empty", {}); });
}

// Encoded once; a changed picture, caption or size is encoded again, and so is a damaged file in the cache.
TEST_F(PictureFolder, EncodedOnce) {
  picture("a.png", 80, 70);
  picture("b.png", 64, 64, 30);
  const auto model = open_denoiser("default-model");
  const auto encoded = [&](const std::string& caption, bool flip = false) {
    return encode_pictures(*model, DType::F32, read_pictures(folder(), caption), {{{kSide, kSide}}, flip},
                           folder() / "cache");
  };
  const PictureSet first = encoded("a box"), again = encoded("a box");
  EXPECT_EQ(first.made, 3);
  EXPECT_EQ(again.made, 0);
  EXPECT_EQ(again.pictures[1].moments, first.pictures[1].moments);
  EXPECT_EQ(again.texts[0].values, first.texts[0].values);
  EXPECT_EQ(again.sha256, first.sha256);
  EXPECT_EQ(encoded("a circle").made, 1);
  const PictureSet flipped = encoded("a box", true);
  EXPECT_EQ(flipped.made, 2);
  EXPECT_EQ(flipped.pictures[0].moments.size(), 2U);
  fs::remove(folder() / "a.png");
  picture("a.png", 80, 70, 90);
  const PictureSet changed = encoded("a box");
  EXPECT_EQ(changed.made, 1);
  EXPECT_NE(changed.sha256, first.sha256);
  EXPECT_NE(changed.pictures[0].moments, first.pictures[0].moments);
  // One of them contains a non-finite value.
  fs::remove_all(folder() / "cache");
  EXPECT_EQ(encoded("a box").made, 3);
  const std::string damaged = fs::directory_iterator(folder() / "cache")->path().string();
  const float none = NAN;
  const TensorData tensor{"values", DType::F32, {1, 1}, std::as_bytes(std::span(&none, 1))};
  write_safetensors(damaged, std::span(&tensor, 1));
  testing::internal::CaptureStdout();
  const PictureSet mended = encoded("a box");
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr(damaged + "] holds nan"));
  EXPECT_EQ(mended.made, 1);
  EXPECT_EQ(mended.pictures[0].moments, changed.pictures[0].moments);
  for (const auto& entry : fs::directory_iterator(folder() / "cache")) fs::resize_file(entry, 20);
  EXPECT_EQ(encoded("a box").made, 3);
}

TEST(Ovals, AreDrawnAndNamed) {
  const auto all = ovals();
  ASSERT_EQ(all.size(), 16U);
  std::set<std::string> captions;
  for (const CaptionedPicture& p : all) {
    EXPECT_EQ(p.image.pixels.size(), 128U * 128 * 3);
    EXPECT_THAT(p.caption, HasSubstr(" zib"));
    captions.insert(p.caption);
  }
  EXPECT_EQ(captions.size(), 16U);
  std::set<std::string> known;
  for (const std::string& scene : known_scenes()) {
    EXPECT_EQ(scene.find(kOvalWord), scene.npos) << scene;
    known.insert(scene);
  }
  EXPECT_EQ(known.size(), known_scenes().size());
}

// ---- files ----

TEST(LoraFile, OtherForms) {
  const language_test::Folder folder;
  const std::string layer = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_out.0";
  const std::vector<float> a(2 * 32, 0.5F), b(32 * 2, 0.25F);
  const auto write = [&](const std::string& component) {
    const std::vector<TensorData> tensors{
        {component + "." + layer + ".lora_A.weight", DType::F32, {2, 32}, std::as_bytes(std::span(a))},
        {component + "." + layer + ".lora_B.weight", DType::F32, {32, 2}, std::as_bytes(std::span(b))}};
    write_safetensors(folder.path() / "from.safetensors", tensors, lora_metadata(component, 2, 8, {"to_out.0"}));
  };
  const auto names = [&](const std::string& component, LoraFormat format) {
    write(component);
    convert_lora(folder.path() / "from.safetensors", folder.path() / "to.safetensors", component, 8, format);
    std::vector<std::string> out;
    const SafetensorsFile file = SafetensorsFile::open(folder.path() / "to.safetensors");
    for (const auto& [name, t] : file.tensors()) {
      out.push_back(name);
      EXPECT_TRUE(!name.ends_with(".alpha") || load_element(t.dtype, t.data, 0) == 8);
    }
    return out;
  };
  const std::string flat = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_out_0";
  EXPECT_THAT(names("unet", LoraFormat::Kohya),
              testing::ElementsAre(flat + ".alpha", flat + ".lora_down.weight", flat + ".lora_up.weight"));
  EXPECT_EQ(names("unet", LoraFormat::Comfy), names("unet", LoraFormat::Kohya));
  EXPECT_THAT(names("transformer", LoraFormat::Comfy),
              testing::Contains("diffusion_model." + layer + ".lora_B.weight"));
  EXPECT_THROW(lora_format_of("peft"), Error);
}

}  // namespace
}  // namespace tenon::train
