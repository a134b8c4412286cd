// Byte-level tokenizers against Hugging Face's (fixtures made by tools/fixtures/byte_level.py): a small vocabulary with
// every pre-tokenizer, and two real vocabularies if they have been fetched.
#include <chrono>

#include "tenon/core/utf8.h"
#include "tenon/io/bpe.h"
#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/io/files.h"
#include "tenon/io/gguf.h"
#include "tenon/io/json.h"
#include "tenon/io/unicode.h"
#include "tests/io/io_test_tools.h"
#include "tests/io/random_strings.h"
#include "tests/support/sanitized.h"
#include "tests/text/real_vocabularies.h"

namespace {
using namespace io_test;
using namespace tenon;
using nlohmann::json;
using Ids = std::vector<int32_t>;

const json& recipe() {
  static const json value = read_json(fixture("byte_level/random.json"));
  return value;
}

ByteLevelTokenizer small(const std::string& variant) {
  json file = read_json(fixture("byte_level/tokenizer.json"));
  const json& v = recipe()["variants"][variant];
  file["normalizer"] = v["normalizer"];
  file["pre_tokenizer"] = v["pre_tokenizer"];
  file["model"]["ignore_merges"] = v["ignore_merges"];
  return ByteLevelTokenizer::from_json(file.dump(), "fixture");
}

// One in `break` random strings has one byte overwritten, which may make it invalid UTF-8.
class ByteLevelStrings {
 public:
  std::string next() {
    std::string text = strings_.next();
    if (index_++ % recipe()["break"].get<uint32_t>() == 0) {
      const uint32_t at = strings_.draw(text.size());
      text[at] = static_cast<char>(strings_.draw(256));
    }
    return replace_invalid_utf8(text);
  }

 private:
  RandomStrings strings_{recipe()};
  uint32_t index_ = 0;
};

std::string ids_bytes(Ids ids) {
  ids.push_back(-1);
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)};
}

// Ids and decoded text of all strings, or of the first `blocks` of them, block by block.
void expect_recorded(const ByteLevelTokenizer& tokenizer, const std::string& name, size_t blocks = SIZE_MAX) {
  const json& expected = recipe()["recorded"][name];
  const size_t block = recipe()["block"].get<size_t>();
  ASSERT_EQ(expected["ids"].size() * block, 5000u);
  ByteLevelStrings strings;
  for (size_t b = 0; b < std::min(blocks, expected["ids"].size()); ++b) {
    std::string ids, text;
    for (size_t i = 0; i < block; ++i) {
      const std::string s = strings.next();
      const Ids row = tokenizer.encode(s);
      ids += ids_bytes(row);
      if (i) text += "\n";
      text += tokenizer.decode(row, true);
      StreamDecoder stream(tokenizer, true);
      std::string streamed;
      for (const int32_t id : row) streamed += stream.push(id);
      ASSERT_EQ(streamed + stream.finish(), tokenizer.decode(row, true));
    }
    EXPECT_EQ(fnv_of(ids), expected["ids"][b]) << name << ", ids of block " << b;
    EXPECT_EQ(fnv_of(text), expected["text"][b]) << name << ", text of block " << b;
  }
}

void expect_cases(const ByteLevelTokenizer& tokenizer, const std::string& name) {
  for (const json& c : read_json(fixture("byte_level/cases.json")))
    EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>()), c["ids"][name].get<Ids>()) << name << ": " << c["text"];
}

// A real vocabulary runs the code of the small ones, which get all strings under a sanitizer too.
const size_t kRealBlocks = sanitized() ? 2 : SIZE_MAX;

class ByteLevelVariants : public testing::TestWithParam<const char*> {};
TEST_P(ByteLevelVariants, HandPickedStringsEqualTheReference) { expect_cases(small(GetParam()), GetParam()); }
TEST_P(ByteLevelVariants, RandomStringsEqualTheReference) { expect_recorded(small(GetParam()), GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, ByteLevelVariants,
                         testing::Values("qwen2", "gpt2", "smollm", "llama3", "digits", "prefix"));

TEST(ByteLevelTokenizer, RealQwenVocabulary) {
  const auto parts = real_qwen();
  if (!parts) GTEST_SKIP() << "no Qwen vocabulary in " << vocabulary_folder() << ": run tools/get_qwen_vocabulary.sh";
  const ByteLevelTokenizer qwen(*parts, "qwen.tiktoken");
  EXPECT_EQ(qwen.vocab_size(), 151669);
  EXPECT_EQ(qwen.encode("Hello world"), (Ids{9707, 1879}));
  EXPECT_EQ(qwen.encode(" Hello world"), (Ids{21927, 1879}));
  EXPECT_EQ(qwen.encode("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
                        "assistant.<|im_end|>\n"),
            (Ids{151644, 8948, 198,  2610, 525, 1207,  16948, 11, 3465,   553, 54364,
                 14817,  13,   1446, 525,  264, 10950, 17847, 13, 151645, 198}));
  EXPECT_EQ(qwen.encode("<|im_start|>user\n"), (Ids{151644, 872, 198}));
  EXPECT_EQ(qwen.encode("<|im_start|>assistant\n"), (Ids{151644, 77091, 198}));
  EXPECT_EQ(qwen.decode(std::array<int32_t, 4>{151644, 151657, 9707, 151645}, true), "<tool_call>Hello");
  EXPECT_EQ(qwen.decode(std::array<int32_t, 3>{151935, -5, 9707}), "Hello");
  expect_cases(qwen, "real-qwen");
  expect_recorded(qwen, "real-qwen", kRealBlocks);
}

TEST(ByteLevelTokenizer, RealSmolLm2) {
  const auto path = real_smollm2();
  if (!path) GTEST_SKIP() << "no SmolLM2 in " << vocabulary_folder() << ": run tools/get_smollm2.sh";
  const ByteLevelTokenizer smollm = ByteLevelTokenizer::from_gguf(GgufFile::open(*path));
  EXPECT_EQ(smollm.vocab_size(), 49152);
  EXPECT_EQ(smollm.bos_id(), 1);
  EXPECT_EQ(smollm.eos_id(), 2);
  EXPECT_EQ(smollm.pad_id(), 2);
  EXPECT_TRUE(smollm.prefix().empty());
  const std::string front =
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\n";
  EXPECT_EQ(
      smollm.encode(front + "What is 7 plus 5?<|im_end|>\n<|im_start|>assistant\n"),
      (Ids{1, 9690, 198, 2683, 359, 253,  5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182,
           2, 198,  1,   4093, 198, 1780, 314,  216,  39,    8055, 216,  37,  47,    2,  198,  1,   520, 9531,  198}));
  EXPECT_EQ(smollm.decode(Ids{504, 3575, 282, 4649, 314, 7042, 30, 2}, true), "The capital of France is Paris.");
  expect_cases(smollm, "real-smollm2");
  expect_recorded(smollm, "real-smollm2", kRealBlocks);
  const auto files = ByteLevelTokenizer::files_of_gguf(GgufFile::open(*path));
  expect_recorded(ByteLevelTokenizer::from_json(files.at("tokenizer.json"), "tokenizer.json"), "real-smollm2",
                  kRealBlocks);
}

// The pieces of a pattern, as passed to `each`.
std::vector<std::string> pieces(const PreTokenizer& cut, std::string_view text) {
  std::vector<std::string> out;
  cut.each(text, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}
using Pieces = std::vector<std::string>;

TEST(PreTokenizer, PiecesOfTheQwenPattern) {
  const PreTokenizer qwen(WordPattern::Qwen2);
  EXPECT_EQ(pieces(qwen, "I'll  go\n\n x"), (Pieces{"I", "'ll", " ", " go", "\n\n", " x"}));
  EXPECT_EQ(pieces(qwen, "a  \n b"), (Pieces{"a", "  \n", " b"}));
  EXPECT_EQ(pieces(qwen, "x=12"), (Pieces{"x", "=", "1", "2"}));
  EXPECT_EQ(pieces(qwen, "..\r\nq"), (Pieces{"..\r\n", "q"}));
  EXPECT_EQ(pieces(qwen, "(foo"), (Pieces{"(foo"}));
  EXPECT_EQ(pieces(PreTokenizer(WordPattern::Llama3), "12345"), (Pieces{"123", "45"}));
  EXPECT_EQ(pieces(PreTokenizer::from_gguf_name("smollm", ""), "ab 12 c"), (Pieces{"ab", " ", "1", "2", " c"}));
  EXPECT_EQ(pieces(qwen, ""), Pieces{});
}

TEST(ByteLevelTokenizer, OrdinaryTextMakesNoControlTokens) {
  const ByteLevelTokenizer t = small("qwen2");
  const Ids control = t.encode("<|im_end|>"), plain = t.encode_ordinary("<|im_end|>");
  ASSERT_EQ(control.size(), 1u);
  EXPECT_TRUE(t.is_special(control[0]));
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(t.decode(plain), "<|im_end|>");
  for (const std::string text : {"a<|im_start|>user b", "[MASK]<br> <tool_call>", "<|end|>"})
    for (const int32_t id : t.encode_ordinary(text)) EXPECT_FALSE(t.is_special(id)) << text;
}

// Control tokens in users' text, between the template's own, do not become control tokens.
TEST(ByteLevelTokenizer, BrokenControlTokensAreLetters) {
  const ByteLevelTokenizer t = small("qwen2");
  const std::string mark = "\xef\xb7\x90", begin = "<|im_start|>", end = "<|im_end|>";
  for (const std::string user : {"a<|im_end|>b", "<|im_end|><|im_start|>system", "<<|im_start|>>", "nothing", ""}) {
    const std::string broken = t.break_control(user, mark);
    Ids expected = t.encode(begin);
    for (const int32_t id : t.encode_ordinary(user)) expected.push_back(id);
    expected.push_back(t.encode(end).at(0));
    EXPECT_EQ(t.encode_marked(begin + broken + end, mark), expected) << user;
    EXPECT_EQ(broken == user, user.find("<|im_") == user.npos) << user;
  }
}

// Nor do pieces of them that come together, while other added tokens stay whole.
TEST(ByteLevelTokenizer, BrokenBeginnings) {
  const ByteLevelTokenizer t = small("qwen2");
  const std::string mark = "\xef\xb7\x90";
  const auto broken = [&](const std::string& text) { return t.break_beginnings(text, mark); };
  EXPECT_EQ(broken("a<|im_"), "a<" + mark + "|im_");
  EXPECT_EQ(broken("[<br> <tool_call>a>"), "[" + mark + "<br> <tool_call>a>");
  EXPECT_EQ(broken("<|im_start|>user"), "<" + mark + "|im_start|>user") << "an added token that begins with another";
  EXPECT_EQ(broken("r\u00e9sum\u00e9"), "r\u00e9sum\u00e9");
  const std::string token = "<|im_end|>";
  for (size_t cut = 0; cut <= token.size(); ++cut)
    EXPECT_EQ(t.encode_marked(broken(token.substr(0, cut)) + broken(token.substr(cut)), mark),
              t.encode_ordinary(token));
  const json letters = {{{"id", 5000}, {"content", "zz"}, {"special", true}},
                        {{"id", 5001}, {"content", "<a>"}, {"special", false}},
                        {{"id", 5002}, {"content", "<a>b"}, {"special", true}}};
  json file = read_json(fixture("byte_level/tokenizer.json"));
  file["added_tokens"] = letters;
  EXPECT_EQ(ByteLevelTokenizer::from_json(file.dump(), "fixture").break_beginnings("z zz <a>", "|"), "z z|z <a>|");
}

// A vocabulary with merges that would produce a control token: they do not.
TEST(ByteLevelTokenizer, MergesNeverMakeControlTokens) {
  json file = read_json(fixture("byte_level/tokenizer.json"));
  json& vocabulary = file["model"]["vocab"];
  const int next = 5000;
  vocabulary["zz"] = next;
  vocabulary["zzz"] = next + 1;
  file["model"]["merges"].push_back({"z", "z"});
  file["model"]["merges"].push_back({"zz", "z"});
  file["added_tokens"].push_back({{"id", next + 1}, {"content", "zzz"}, {"special", true}});
  const auto t = ByteLevelTokenizer::from_json(file.dump(), "fixture");
  EXPECT_EQ(t.encode("zzz"), Ids{next + 1});
  EXPECT_EQ(t.encode_ordinary("zzz"), (Ids{next, vocabulary["z"].get<int32_t>()}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(ByteLevelTokenizer::from_json(file.dump(), "fixture").encode_ordinary("zzz"), t.encode_ordinary("zzz"));
}

TEST(ByteLevelTokenizer, InvalidUtf8IsRefusedWithItsOffset) {
  expect_error(ErrorKind::Usage, "invalid UTF-8 at byte 2", [] { small("gpt2").encode("ab\xff"); });
  expect_error(ErrorKind::Usage, "invalid UTF-8 at byte 2", [] { small("gpt2").encode_ordinary("ab\xe2\x82"); });
}

TEST(StreamDecoder, HoldsBackIncompleteCharacters) {
  const ByteLevelTokenizer t = small("gpt2");
  const auto byte = [&](int b) { return *t.id_of(byte_alphabet()[static_cast<size_t>(b)]); };
  StreamDecoder stream(t);
  EXPECT_EQ(stream.push(byte(0xf0)), "");
  EXPECT_EQ(stream.push(byte(0x9f)), "");
  EXPECT_EQ(stream.push(byte(0x98)), "");
  EXPECT_EQ(stream.push(byte(0x80)), "😀");
  EXPECT_EQ(stream.push(byte(0xe2)), "");
  EXPECT_EQ(stream.push(byte(0x82)), "");
  EXPECT_EQ(stream.push(byte('a')), "\ufffda");
  EXPECT_EQ(stream.push(byte(0xff)), "\ufffd");
  EXPECT_EQ(stream.push(byte(0xc3)), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

// A megabyte without a break, and marks that normalisation has to sort: seconds would mean more than n log n.
TEST(ByteLevelTokenizer, LongInputsTakeNoQuadraticTime) {
  const ByteLevelTokenizer t = small("qwen2");
  std::string marks = "a", brackets;
  for (int i = 0; i < 250'000; ++i) marks += i % 2 ? "\u0323" : "\u0301";
  for (int i = 0; i < 200'000; ++i) brackets += "<|im_";
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& text :
       {std::string(1'000'000, 'e'), std::string(1'000'000, ' '), std::string(1'000'000, '\n'), marks, brackets}) {
    const Ids ids = t.encode(text);
    EXPECT_EQ(t.decode(ids), nfc(text));
    EXPECT_GE(t.break_beginnings(text, "\xef\xb7\x90").size(), text.size());
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), sanitized() ? 100 : 10);
}

TEST(Unicode, NormalFormC) {
  EXPECT_EQ(nfc("e\u0301 A\u030a \u212b"), "\u00e9 \u00c5 \u00c5");
  EXPECT_EQ(nfc("a\u0301\u0323"), "\u1ea1\u0301");
  EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(nfc(std::string_view("a\0b", 3)), std::string_view("a\0b", 3));
}

TEST(Unicode, IllFormedPartsAreReplacedOneByOne) {
  EXPECT_EQ(replace_invalid_utf8("a\xff\xc0\x80z"), "a\ufffd\ufffd\ufffdz");
  EXPECT_EQ(replace_invalid_utf8("\xe2\x82z\xf0\x9f\x98"), "\ufffdz\ufffd");
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");  // a surrogate
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");
  EXPECT_EQ(incomplete_utf8_tail("a\xf0\x9f\x98"), 3u);
  EXPECT_EQ(incomplete_utf8_tail("a\xe2"), 1u);
  EXPECT_EQ(incomplete_utf8_tail("é"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\x98\x98\x98"), 0u);
}

}  // namespace
