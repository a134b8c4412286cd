// CLIP's tokenizer against transformers', on the real vocabulary (fixtures made by tools/fixtures/tokenizer_clip.py).
#include <fstream>

#include "tenon/io/bpe.h"
#include "tenon/io/clip_text.h"
#include "tenon/io/clip_tokenizer.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tests/io/io_test_tools.h"
#include "tests/io/random_strings.h"

namespace {
using namespace io_test;
using namespace tenon;
using nlohmann::json;
using Ids = std::vector<int32_t>;

// The vocab.json that belongs to a list of merges: bytes, bytes with </w>, merges in order, the two special tokens.
json vocabulary_of(const std::string& merges) {
  json out = json::object();
  int id = 0;
  std::vector<std::string> letters;
  for (int b = 0; b < 256; ++b)
    if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174)
      letters.push_back(byte_alphabet()[static_cast<size_t>(b)]);
  for (int b = 0; b < 256; ++b)
    if (!((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174))
      letters.push_back(byte_alphabet()[static_cast<size_t>(b)]);
  for (const std::string& c : letters) out[c] = id++;
  for (const std::string& c : letters) out[c + "</w>"] = id++;
  std::istringstream lines(merges);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with("#version")) continue;
    line.erase(line.find(' '), 1);
    out[line] = id++;
  }
  out["<|startoftext|>"] = id++;
  out["<|endoftext|>"] = id++;
  return out;
}

const ClipTokenizer& real() {
  static const ClipTokenizer tokenizer = [] {
    const std::string merges = read_file(TENON_SOURCE_DIR "/assets/clip/merges.txt");
    return ClipTokenizer::from_text(vocabulary_of(merges).dump(), merges, "CLIP");
  }();
  return tokenizer;
}

TEST(ClipTokenizer, SpecialIdsOfTheRealVocabulary) {
  EXPECT_EQ(real().vocab_size(), 49408);
  EXPECT_EQ(real().start_id(), 49406);
  EXPECT_EQ(real().end_id(), 49407);
  EXPECT_EQ(real().pad_id(), 49407);
  EXPECT_EQ(real().window_length(), 77);
}

// Without a vocabulary.
TEST(ClipTokenizer, MergesAloneGiveTheSameIds) {
  const std::string merges = read_file(TENON_SOURCE_DIR "/assets/clip/merges.txt");
  const ClipTokenizer alone = ClipTokenizer::from_merges(merges, "CLIP");
  EXPECT_EQ(alone.vocab_size(), real().vocab_size());
  EXPECT_EQ(alone.start_id(), real().start_id());
  EXPECT_EQ(alone.end_id(), real().end_id());
  std::ifstream in(fixture("clip/cases.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const json c = json::parse(line);
    EXPECT_EQ(alone.encode(c[0].get<std::string>()), c[1].get<Ids>()) << c[0];
  }
  EXPECT_THROW(ClipTokenizer::from_merges("a b\na b\n", "twice"), Error);
}

TEST(ClipTokenizer, KnownVectors) {
  EXPECT_EQ(real().encode(""), Ids{});
  EXPECT_EQ(real().encode("a photo of a cat"), (Ids{320, 1125, 539, 320, 2368}));
  EXPECT_EQ(real().encode("A Photo of a CAT!!"), (Ids{320, 1125, 539, 320, 2368, 748}));
  EXPECT_EQ(real().encode("it's 2024, don't"), (Ids{585, 568, 273, 271, 273, 275, 267, 847, 713}));
  EXPECT_EQ(real().encode("naïve café 日本"), (Ids{1097, 35689, 563, 15304, 39121, 19277, 361}));
  EXPECT_EQ(real().encode("emoji 😀"), (Ids{16327, 7334}));
  EXPECT_EQ(real().encode("!!'s"), (Ids{1443, 262, 338}));
}

TEST(ClipTokenizer, HandPickedCorpusEqualsTransformers) {
  std::ifstream in(fixture("clip/cases.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    const json c = json::parse(line);
    EXPECT_EQ(real().encode(c[0].get<std::string>()), c[1].get<Ids>()) << c[0];
  }
  EXPECT_GE(cases, 50);
}

TEST(ClipTokenizer, RandomStringsEqualTransformers) {
  const json recipe = read_json(fixture("clip/random.json"));
  ASSERT_GE(recipe["strings"].get<int>(), 20000);
  RandomStrings strings(recipe);
  for (const json& expected : recipe["hashes"]) {
    Fnv hash;
    for (int i = 0; i < recipe["block"].get<int>(); ++i) {
      for (int32_t id : real().encode(strings.next())) hash.add(static_cast<uint32_t>(id));
      hash.add(static_cast<uint32_t>(-1));
    }
    ASSERT_EQ(hash.hex(), expected.get<std::string>());
  }
}

TEST(ClipTokenizer, LongWordsAreFast) {
  std::string word;
  for (int i = 0; i < 200000; ++i) word += "abcdefg"[i % 7];
  EXPECT_GT(real().encode(word).size(), 10000u);
}

TEST(ClipTokenizer, WindowsOfAPrompt) {
  const auto short_one = real().windows(real().encode_weighted("a (cat:1.5)"));
  ASSERT_EQ(short_one.size(), 1u);
  EXPECT_EQ(short_one[0].ids.size(), 77u);
  EXPECT_EQ((Ids(short_one[0].ids.begin(), short_one[0].ids.begin() + 5)), (Ids{49406, 320, 2368, 49407, 49407}));
  EXPECT_EQ(short_one[0].ids.back(), 49407);
  EXPECT_EQ(short_one[0].weights[1], 1.0f);
  EXPECT_EQ(short_one[0].weights[2], 1.5f);
  EXPECT_EQ(short_one[0].weights[3], 1.0f);
  EXPECT_EQ(short_one[0].text_tokens, 2);

  std::string long_prompt;
  for (int i = 0; i < 151; ++i) long_prompt += "cat ";
  const auto three = real().windows(real().encode_weighted(long_prompt));
  ASSERT_EQ(three.size(), 3u);
  for (const TokenWindow& w : three) EXPECT_EQ(w.ids.front(), 49406);
  EXPECT_EQ(three[0].ids[75], 2368);
  EXPECT_EQ(three[0].ids[76], 49407);
  EXPECT_EQ(three[2].text_tokens, 1);
  EXPECT_EQ(real().windows({}, 2).size(), 2u);

  int64_t dropped = 0;
  const TokenWindow cut = real().first_window(real().encode(long_prompt), &dropped);
  EXPECT_EQ(cut.ids, three[0].ids);
  EXPECT_EQ(dropped, 76);
}

TEST(ClipTokenizer, InvalidUtf8IsAUsageError) {
  expect_error(ErrorKind::Usage, "invalid UTF-8 at byte 2", [] { real().encode("ab\xff"); });
  expect_error(ErrorKind::Usage, "invalid UTF-8 at byte 4", [] { real().encode_weighted("(ab:\xc3"); });
  expect_error(ErrorKind::Usage, "invalid UTF-8 at byte 1", [] { real().encode("a\xf4\x90\x80\x80"); });
}

TEST(ClipTokenizer, FoldersAndTheirConfig) {
  const TempFolder folder;
  const std::string merges = "#version: 0.2\nc a\nca t</w>\n";
  const json vocabulary = vocabulary_of(merges);
  put(folder / "a/vocab.json", vocabulary.dump());
  put(folder / "a/merges.txt", merges);
  EXPECT_EQ(ClipTokenizer::from_folder(folder / "a").encode("Cat"), Ids{513});
  put(folder / "a/tokenizer_config.json", R"({"pad_token":{"content":"!"},"model_max_length":20})");
  const ClipTokenizer configured = ClipTokenizer::from_folder(folder / "a");
  EXPECT_EQ(configured.pad_id(), 0);
  EXPECT_EQ(configured.windows({})[0].ids.size(), 20u);
  put(folder / "a/tokenizer_config.json", R"({"pad_token":"!","model_max_length":1000000000000000019884624838656})");
  EXPECT_EQ(ClipTokenizer::from_folder(folder / "a").window_length(), 77);

  for (const json& list : {json::parse(R"(["c a","ca t</w>"])"), json::parse(R"([["c","a"],["ca","t</w>"]])")}) {
    put(folder / "b/tokenizer.json", json{{"model", {{"vocab", vocabulary}, {"merges", list}}}}.dump());
    EXPECT_EQ(ClipTokenizer::from_folder(folder / "b").encode("CAT cat"), (Ids{513, 513}));
  }
}

TEST(ClipTokenizer, BytesOutsideTheVocabularyBecomeTheEndToken) {
  const ClipTokenizer tokenizer =
      ClipTokenizer::from_text(R"({"a":0,"a</w>":1,"<|startoftext|>":2,"<|endoftext|>":3})", "", "tiny");
  EXPECT_EQ(tokenizer.encode("aab"), (Ids{0, 0, 3}));
}

TEST(ClipTokenizer, BadFiles) {
  const TempFolder folder;
  const auto expect = [](const std::string& vocab, const std::string& merges, const std::string& part) {
    expect_error(ErrorKind::Model, part, [&] { ClipTokenizer::from_text(vocab, merges, "files"); });
  };
  const std::string good = R"({"a":0,"b":1,"ab":2,"<|startoftext|>":3,"<|endoftext|>":4})";
  expect("[]", "", "expected an object of token ids, found array");
  expect(R"({"a":-1})", "", "token 'a': expected an id");
  expect(R"({"a":99999999})", "", "token 'a': expected an id");
  expect(R"({"a":"0"})", "", "token 'a': expected an id");
  expect(R"({"<|startoftext|>":3})", "", "the vocabulary has no token '<|endoftext|>'");
  expect(R"({"<|endoftext|>":3})", "", "the vocabulary has no token '<|startoftext|>'");
  expect(good, "a b\nab\n", "line 2] expected two symbols with a blank between them, found 'ab'");
  expect(good, "a b c\n", "expected two symbols");
  expect(good, "a x\n", "'x' is not in the vocabulary");
  expect(good, "b a\n", "'ba' is not in the vocabulary");
  expect(good, "a \xff\n", "invalid UTF-8 at byte 2");
  expect_error(ErrorKind::Model, "no tokenizer here", [&] { ClipTokenizer::from_folder(folder.path()); });
  put(folder / "tokenizer.json", "{}");
  expect_error(ErrorKind::Model, "expected an object 'model'", [&] { ClipTokenizer::from_folder(folder.path()); });
  put(folder / "tokenizer.json", R"({"model":{"vocab":)" + good + R"(,"merges":[3]}})");
  expect_error(ErrorKind::Model, "expected a merge of two symbols", [&] { ClipTokenizer::from_folder(folder.path()); });
  expect_error(ErrorKind::Model, "cannot open for reading",
               [&] { ClipTokenizer::from_files(folder / "vocab.json", folder / "merges.txt"); });
}

TEST(ClipText, NormalForm) {
  EXPECT_EQ(clip_normal_form("A \t\r\n\u00a0\u3000B"), "a b");
  EXPECT_EQ(clip_normal_form("E\u0301"), "\u00e9");
  EXPECT_EQ(clip_normal_form("\u0130\u03a3"), "i\u0307\u03c3");
  EXPECT_EQ(clip_normal_form(std::string_view("a\0B", 3)), std::string_view("a\0b", 3));
}

}  // namespace
