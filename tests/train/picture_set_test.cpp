// Training pictures encoded by a model's frozen parts.
#include "tenon/train/picture_set.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include "tenon/core/error.h"
#include "tenon/pipelines/model_parts.h"
#include "tests/language/language_fixtures.h"

namespace tenon::train {
namespace {

std::unique_ptr<TrainableDenoiser> open_encoders() {
  return open_as<TrainableDenoiser>("z-image-shapes", {.backend = make_backend("cpu"), .parts = {}});
}

// Z-Image keeps its text encoder ready for texts of similar length only.
TEST(PictureSet, TextsOfOneLengthAreEncodedTogether) {
  std::string longer = "a red circle";
  while (longer.size() < 600) longer += ", a blue box";
  const std::vector<std::string> captions{"a red circle", longer, "a blue box", longer + ".", "a red circle"};
  std::vector<CaptionedPicture> pictures;
  for (const std::string& caption : captions)
    pictures.push_back({"a.png", Image{64, 64, 3, std::vector<uint8_t>(64 * 64 * 3, 9)}, "0", caption});
  const auto model = open_encoders();
  ASSERT_GT(model->text_shape(captions[1])[0], 128);
  const auto level = spdlog::get_level();
  spdlog::set_level(spdlog::level::debug);
  testing::internal::CaptureStdout();
  const PictureSet set = encode_pictures(*model, DType::F32, pictures, {{{64, 64}}, false}, "");
  const std::string log = testing::internal::GetCapturedStdout();
  spdlog::set_level(level);
  int prepared = 0;
  for (size_t at = 0; (at = log.find("text_encoder: planned in", at)) != log.npos; ++at) ++prepared;
  EXPECT_EQ(prepared, 2) << log;
  // The set itself stays in the order of the pictures.
  ASSERT_EQ(set.texts.size(), 4U);
  for (size_t i = 0; i < captions.size(); ++i) EXPECT_EQ(set.pictures[i].text, i % 4);
  for (size_t i = 0; i < set.texts.size(); ++i)
    EXPECT_EQ(set.texts[i].values, model->encode_text(captions[i]).values) << captions[i];
}

TEST(PictureSet, AnEmptyCaptionIsNone) {
  const language_test::Folder folder;
  for (const char* name : {"a.png", "b.png", "c.png", "d.png"})
    write_png(folder.path() / name, {4, 4, 3, std::vector<uint8_t>(48, 9)});
  folder.write("a.txt", "");
  folder.write("b.txt", "a box");
  folder.write("c.txt", "\xef\xbb\xbf \t\r\n");
  const auto captions = [&](const std::string& given) {
    std::vector<std::string> out;
    for (const CaptionedPicture& p : read_pictures(folder.path(), given)) out.push_back(p.caption);
    return out;
  };
  testing::internal::CaptureStdout();
  EXPECT_THAT(captions("given"), testing::ElementsAre("given", "a box", "given", "given"));
  EXPECT_THAT(captions(""), testing::ElementsAre("", "a box", "", "")) << "asked for";
  folder.write("c.txt", "a ring");
  EXPECT_THAT(captions("given"), testing::ElementsAre("given", "a box", "a ring", "given"));
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, testing::HasSubstr(folder.path().string() + ": 2 caption files are empty; --caption is used"));
  EXPECT_THAT(log, testing::HasSubstr(": 1 caption file is empty; --caption is used"));
  try {
    read_pictures(folder.path(), {});
    FAIL() << "an empty caption was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Usage);
    EXPECT_THAT(e.what(), testing::HasSubstr("a.png] has no caption: a.txt beside it is empty; fill it"));
  }
}

}  // namespace
}  // namespace tenon::train
