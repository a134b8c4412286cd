// The registry of families: which family is asked for what, and errors for a model that lacks the ability.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tenon/core/error.h"
#include "tenon/pipelines/image_embedder.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/model_parts.h"

namespace tenon {
namespace {

// An ability that no model in the tree has: it is defined by its interface alone.
class Counter {
 public:
  static constexpr AbilityName kAbility{"count", "count"};
  struct Options {
    int from = 0;
  };
  explicit Counter(int from) : next(from) {}
  int next;
};

const RegisterFamily kCounting{
    {.name = "counting",
     .presets =
         [] {
           return Presets{{"counting", "counts"}};
         },
     .abilities = {ability<Counter>([](const std::string& spec, const Counter::Options& options) {
       return std::make_unique<Counter>(options.from + static_cast<int>(spec.size()));
     })}}};

std::string refusal(const std::function<void()>& open, ErrorKind kind) {
  try {
    open();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "opened";
  return {};
}

TEST(Families, AnAbilityIsOpenedByItsInterface) {
  EXPECT_EQ(open_as<Counter>("random:counting", {5})->next, 5 + 15);
  EXPECT_EQ(family_of("random:counting").name, "counting");
  EXPECT_EQ(families_that(Counter::kAbility).size(), 1u);
}

TEST(Families, ThoseOfTheTreeSayWhatTheyCanDo) {
  const auto names = [](const AbilityName& ability) {
    std::vector<std::string> out;
    for (const ModelFamily* f : families_that(ability)) out.push_back(f->name);
    return out;
  };
  EXPECT_THAT(names(ImageGenerator::kAbility), testing::ElementsAre("stable diffusion", "z-image"));
  EXPECT_THAT(names(ImageEmbedder::kAbility), testing::ElementsAre("image encoder"));
  EXPECT_THAT(names(ModelParts::kAbility), testing::IsSupersetOf({"image encoder", "stable diffusion"}));
}

TEST(Families, NamesAreNotTakenTwice) {
  std::set<std::string> families, presets;
  int last_resorts = 0;
  for (const ModelFamily* f : model_families()) {
    EXPECT_TRUE(families.insert(f->name).second) << f->name;
    for (const auto& [preset, about] : f->presets()) EXPECT_TRUE(presets.insert(preset).second) << preset;
    std::set<std::string_view> verbs;
    for (const Ability& a : f->abilities) EXPECT_TRUE(verbs.insert(a.name.verb).second) << f->name << a.name.verb;
    last_resorts += f->last_resort;
  }
  EXPECT_EQ(last_resorts, 1);
}

TEST(Families, RefusalsNameTheFamilyWhatItCanAndWhoElse) {
  EXPECT_EQ(refusal([] { open_as<Counter>("random:tiny"); }, ErrorKind::Model),
            "[model] random:tiny is of the family 'stable diffusion', which cannot count; it can draw pictures "
            "(generate), learn from pictures (train lora), show its networks (explain) (these can: counting)");
  EXPECT_THAT(refusal([] { open_as<ImageEmbedder>(""); }, ErrorKind::Model),
              testing::AllOf(testing::HasSubstr("'stable diffusion'"), testing::HasSubstr("image encoder")));
  EXPECT_THAT(refusal([] { open_as<ImageGenerator>("random:vit-s14"); }, ErrorKind::Model),
              testing::HasSubstr("'image encoder', which cannot draw pictures"));
}

}  // namespace
}  // namespace tenon
