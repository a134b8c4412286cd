// --type: a type for everything, exceptions for layers and networks, and their effect on a network's plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/pipelines/families/z_image/networks.h"
#include "tenon/pipelines/networks.h"

namespace tenon {
namespace {
using ::testing::HasSubstr;
using Rule = PrecisionPolicy::Rule;

template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

NetworkOptions options_of(const char* text) {
  const NetworkType t = NetworkType::parse(text);
  return {.precision = {t.stored, t.stored}, .policy = t.policy};
}

TEST(NetworkType, IsATypeWithExceptions) {
  const NetworkType plain = NetworkType::parse("fp32");
  EXPECT_EQ(plain.stored, DType::F32);
  EXPECT_EQ(plain.policy, PrecisionPolicy());
  const NetworkType mixed = NetworkType::parse(" e4m3 , bf16: text_encoder,f32: final_layer, int8: ff");
  EXPECT_EQ(mixed.stored, DType::BF16);
  EXPECT_EQ(mixed.name(), DType::E4M3);
  const std::vector<PrecisionPolicy::Exception> exceptions = {
      {Rule::BF16, "text_encoder"}, {Rule::F32, "final_layer"}, {Rule::I8Weights, "ff"}};
  EXPECT_EQ(mixed.policy, (PrecisionPolicy{Rule::E4m3Rows, exceptions}));
  for (const char* text : {"bf16", "f16", "f32", "e4m3", "bf16, e4m3: ff.net, f32: proj", "e4m3, bf16: text_encoder"}) {
    const NetworkType t = NetworkType::parse(text), again = NetworkType::parse(t.text());
    EXPECT_EQ(again.stored, t.stored) << text;
    EXPECT_EQ(again.policy, t.policy) << text;
  }
  EXPECT_EQ(NetworkType::parse("e4m3 rows").text(), "e4m3");
  EXPECT_EQ(NetworkType::parse("int8").name(), DType::I8);
}

TEST(NetworkType, ErrorsNameWhatWasExpected) {
  const auto refused = [](const char* text) { return error_of([&] { NetworkType::parse(text); }); };
  EXPECT_THAT(refused("fp17"), HasSubstr("'fp17' is not supported; expected bf16, f16, f32, e4m3 or int8"));
  EXPECT_THAT(refused("fp17"), HasSubstr("did you mean"));
  EXPECT_THAT(refused(""), HasSubstr("expected bf16, f16, f32, e4m3 or int8"));
  EXPECT_THAT(refused("bf16, fp17: proj"),
              HasSubstr("'fp17' is none of operands, f32, bf16, f16, e4m3 rows (or e4m3)"));
  EXPECT_THAT(refused("bf16, f32"), HasSubstr("expected a rule and part of a weight's name"));
  EXPECT_THAT(refused("bf16, f32:"), HasSubstr("expected a rule and part of a weight's name"));
  EXPECT_THAT(refused("bf16,"), HasSubstr("expected a rule and part of a weight's name"));
}

TEST(NetworkType, ANetworkHasItsOwnPolicyBehindTheExceptions) {
  const PrecisionPolicy own = PrecisionPolicy::parse("e4m3 rows, bf16: final_layer");
  const auto text = [&](const char* type, const char* network) {
    return precision_of(network, options_of(type), own).text();
  };
  EXPECT_EQ(text("bf16", "transformer"), "operands");
  EXPECT_EQ(text("e4m3", "transformer"), "e4m3 rows, bf16: final_layer");
  EXPECT_EQ(text("e4m3, bf16: text_encoder", "transformer"), "e4m3 rows, bf16: text_encoder, bf16: final_layer");
  EXPECT_EQ(text("e4m3, bf16: text_encoder", "text_encoder"), "bf16");
  EXPECT_EQ(text("bf16, e4m3: text_encoder", "text_encoder"), "e4m3 rows, bf16: final_layer");
  EXPECT_EQ(text("e4m3, e4m3: final_layer", "transformer"), "e4m3 rows, e4m3 rows: final_layer, bf16: final_layer");
  EXPECT_THAT(error_of([] { precision_of("unet", options_of("e4m3")); }),
              HasSubstr("it is not known which layers of 'unet' tolerate it"));
  EXPECT_EQ(precision_of("unet", options_of("bf16, e4m3: ff.net")).text(), "operands, e4m3 rows: ff.net");
  NetworkOptions branches = options_of("e4m3");
  branches.side.rank = 4;
  EXPECT_EQ(precision_of("transformer", branches, own).exceptions.size(), 3u);
}

TEST(NetworkType, WhatNoPictureModelComputesInIsRefusedWhenItOpens) {
  const std::array<std::string_view, 2> networks{"unet", "vae_decoder"};
  const auto error = [&](const char* type, const std::optional<PrecisionPolicy>& own = {}) {
    return error_of([&] { check_rules(NetworkType::parse(type), networks, own); });
  };
  EXPECT_THAT(error("int8"), HasSubstr("int8 is for language models, not for 'unet'"));
  EXPECT_THAT(error("bf16, int8: vae_decoder"), HasSubstr("int8 is for language models, not for 'vae_decoder'"));
  EXPECT_THAT(error("e4m3, bf16: unet"), HasSubstr("which layers of 'vae_decoder' tolerate it"));
  check_rules(NetworkType::parse("e4m3"), networks, PrecisionPolicy());
  check_rules(NetworkType::parse("bf16, e4m3: ff.net"), networks);
}

TEST(NetworkType, ExceptionsNameSomethingOfTheModel) {
  int asked = 0;
  const auto networks = [&asked] {
    ++asked;
    const WeightShapes blocks{{"blocks.0.attn.qkv.weight", {6, 2}}, {"blocks.0.norm.weight", {2}}};
    return std::vector<NamedNetwork>{{"text_encoder", {{"embed.weight", {4, 2}}}}, {"transformer", blocks}};
  };
  const auto check = [&](const char* type) {
    return error_of([&] { check_exceptions(NetworkType::parse(type), networks); });
  };
  EXPECT_EQ(check("e4m3"), "no error");
  EXPECT_EQ(asked, 0);
  for (const char* good : {"bf16, f32: text_encoder", "bf16, f32: qkv", "bf16, f32: 0.attn.qkv.w, f16: norm"})
    EXPECT_EQ(check(good), "no error") << good;
  EXPECT_THAT(check("bf16, f32: qkv, f16: nrom"), HasSubstr("the exception 'nrom' matches no network"));
  EXPECT_THAT(check("bf16, f32: text_encoders"), HasSubstr("did you mean 'text_encoder'?"));
  EXPECT_THAT(check("bf16, f32: block.0.attn"), HasSubstr("did you mean 'blocks.0.attn'?"));
  EXPECT_THAT(check("bf16, f32: Q"), HasSubstr("networks: text_encoder, transformer; weights such as embed.weight"));
}

int64_t products(const Plan& plan, DType arithmetic) {
  int64_t n = 0;
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches)
      if (const Expr a = anchor_of(l); a && a.is<nodes::Linear>() && a->attrs.dtype == arithmetic) ++n;
  return n;
}

// Z-Image's text encoder stays in bf16 next to a transformer in e4m3.
TEST(NetworkType, APolicyForEachNetwork) {
  const auto model = ZImageModel::open("z-image-shapes");
  const auto plans = [&](const char* type) {
    const NetworkOptions o = options_of(type);
    return std::pair{plan_text(*model, 1, 128, o), plan_transformer(*model, {.height = 16, .width = 16}, o)};
  };
  const auto [text, transformer] = plans("e4m3, bf16: text_encoder");
  EXPECT_EQ(products(text, DType::E4M3), 0);
  EXPECT_GT(products(text, DType::BF16), 0);
  EXPECT_THAT(print_plan(text), HasSubstr("precision \"bf16\""));
  EXPECT_GT(products(transformer, DType::E4M3), 0);
  const auto [all, same] = plans("e4m3");
  EXPECT_GT(products(all, DType::E4M3), 0);
  EXPECT_EQ(products(same, DType::E4M3), products(transformer, DType::E4M3));
  const auto [none, fewer] = plans("e4m3, bf16: attention");
  EXPECT_LT(products(fewer, DType::E4M3), products(same, DType::E4M3));
  EXPECT_GT(products(fewer, DType::E4M3), 0);
}

}  // namespace
}  // namespace tenon
