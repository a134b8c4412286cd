// Tokenizer files: what is read from where, and what is refused.
#include "tenon/io/bpe.h"
#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/io/json.h"
#include "tests/gguf/gguf_bytes.h"
#include "tests/io/io_test_tools.h"

namespace {
using namespace io_test;
using namespace tenon;
using gguf_test::GgufBytes;
using nlohmann::json;
using Ids = std::vector<int32_t>;

// "t", "e", "te" and a control token, in the form of a tokenizer.json.
json tokenizer_json() {
  return json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<s>", "special": true, "normalized": false, "lstrip": false, "rstrip": false,
                      "single_word": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"t": 0, "e": 1, "te": 2, "Ġ": 3}, "merges": [["t", "e"]]}})");
}
ByteLevelTokenizer read(const json& file) { return ByteLevelTokenizer::from_json(file.dump(), "tokenizer.json"); }

json changed(const std::string& pointer, const json& value) {
  json out = tokenizer_json();
  out[json::json_pointer(pointer)] = value;
  return out;
}

TEST(ByteLevelFiles, MergesAsPairsOrStrings) {
  EXPECT_EQ(read(tokenizer_json()).encode("te t<s>e"), (Ids{2, 3, 0, 5, 1}));
  EXPECT_EQ(read(changed("/model/merges", {"t e"})).encode("te"), Ids{2});
}

// As in Hugging Face's tokenizers: their neighbours in the word become adjacent.
TEST(ByteLevelFiles, BytesWithoutATokenAreLeftOut) {
  EXPECT_EQ(read(tokenizer_json()).encode("txe!"), Ids{2});
  EXPECT_EQ(read(tokenizer_json()).encode("t!e"), (Ids{0, 1}));
}

TEST(ByteLevelFiles, BytesWithoutATokenMayHaveOne) {
  json file = changed("/model/unk_token", "<s>");
  file["model"]["vocab"]["<s>"] = 5;
  EXPECT_EQ(read(file).encode("txe!"), (Ids{0, 5, 1, 5}));
  EXPECT_EQ(read(file).encode("xxte"), (Ids{5, 5, 2}));
  EXPECT_EQ(read(file).encode_ordinary("txe!"), (Ids{0, 1}));  // it is a control token
  file["model"]["fuse_unk"] = true;
  expect_error(ErrorKind::Model, "model.fuse_unk is not supported", [&] { read(file); });
  expect_error(ErrorKind::Model, "model.unk_token: there is no token '<u>'",
               [] { read(changed("/model/unk_token", "<u>")); });
}

TEST(ByteLevelFiles, WhatIsNotSupportedIsNamed) {
  const std::vector<std::tuple<std::string, json, std::string>> cases = {
      {"/model/type", "WordPiece", "model type \"WordPiece\" is not supported"},
      {"/model/byte_fallback", true, "model.byte_fallback is not supported"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix \"</w>\" is not supported"},
      {"/model/dropout", 0.1, "model.dropout 0.1 is not supported"},
      {"/model/vocab", json::array(), "expected an object 'model' with an object 'vocab' and an array 'merges'"},
      {"/model/vocab/t", -1, "token 't': expected an id from 0 to"},
      {"/model/vocab/t", 1, "which another token has too"},
      {"/model/merges", json::array({json::array({"t", "x"})}), "'x' is not in the vocabulary"},
      {"/model/merges", {"t e e"}, "expected two symbols with a blank between them, found 't e e'"},
      {"/model/merges", {3}, "expected a merge of two symbols, found 3"},
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer {\"type\":\"Lowercase\"} is not supported"},
      {"/decoder", {{"type", "Metaspace"}}, "decoder \"Metaspace\" is not supported"},
      {"/pre_tokenizer", nullptr, "expected a ByteLevel step"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer 'Metaspace' is not supported"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+"}}}},
       "splitting by '(a+)+' is not supported"},
      {"/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", 3}}, "expected a Sequence to have an array"},
      {"/pre_tokenizer/add_prefix_space", 1e30, "pre_tokenizer: add_prefix_space: expected true or false, found 1e+30"},
      {"/pre_tokenizer/use_regex", json::array(), "pre_tokenizer: use_regex: expected true or false, found []"},
      {"/pre_tokenizer/trim_offsets", "x", "pre_tokenizer: trim_offsets: expected true or false, found \"x\""},
      {"/post_processor", {{"type", "BertProcessing"}}, "post_processor \"BertProcessing\" is not supported"},
      {"/added_tokens/0/id", 1 << 24, "added token '<s>': expected an id from 0 to"},
      {"/added_tokens/0/id", 1, "which another token has too"},
      {"/added_tokens/0/content", "t", "added token 't' has id 5, but 0 in the vocabulary"},
      {"/added_tokens/0/content", 1, "expected an object with a string 'content'"},
      {"/added_tokens/0/content", std::string(300, 'x'), "has 300 bytes; at most 256"},
      {"/added_tokens/0/single_word", true, "single_word is not supported"},
      {"/added_tokens/0/special", "yes", "special: expected true or false"},
      {"/added_tokens",
       {{{"id", 4}, {"content", "a"}}, {{"id", 5}, {"content", "a"}}},
       "added token 'a' occurs twice"}};
  for (const auto& [pointer, value, part] : cases) {
    const json file = changed(pointer, value);
    expect_error(ErrorKind::Model, part, [&] { read(file); });
    expect_error(ErrorKind::Model, "[tokenizer.json", [&] { read(file); });
  }
  json control = tokenizer_json();
  control["added_tokens"][0] = {{"id", 0}, {"content", "t"}, {"special", true}};
  expect_error(ErrorKind::Model, "control token 't' is also the token of a byte", [&] { read(control); });
  expect_error(ErrorKind::Model, "expected an object with an object 'model'", [] { read(json::array()); });
  expect_error(ErrorKind::Model, "invalid JSON", [] { ByteLevelTokenizer::from_json("{", "x"); });
}

TEST(ByteLevelFiles, TokensInFrontOfAText) {
  const json front = {{"type", "TemplateProcessing"},
                      {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}},
                      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {5}}}}}}};
  EXPECT_EQ(read(changed("/post_processor", front)).prefix(), Ids{5});
  EXPECT_EQ(read(changed("/post_processor", {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, front}}}))
                .prefix(),
            Ids{5});
  // The ids are those of the template, whatever the token's own.
  json other = front;
  other["special_tokens"]["<s>"]["ids"] = {1, 7};
  EXPECT_EQ(read(changed("/post_processor", other)).encode_whole("t"), (Ids{1, 7, 0}));
  const auto refused = [&](const json& processor, const std::string& part) {
    expect_error(ErrorKind::Model, part, [&] { read(changed("/post_processor", processor)); });
  };
  const auto single = [&](const std::vector<size_t>& items) {
    json out = front;
    out["single"] = json::array();
    for (const size_t i : items) out["single"].push_back(front["single"][i]);
    return out;
  };
  refused(single({1, 0}), "a token after the text is not supported");
  refused(single({0, 1, 1}), "the text twice is not supported");
  refused(single({0}), "the template has no Sequence A");
  refused({{"type", "Sequence"}, {"processors", {front, front}}}, "expected one TemplateProcessing, found two");
  json wrong = front;
  wrong["special_tokens"]["<s>"]["ids"] = {-1};
  refused(wrong, "token '<s>': expected ids from 0 to 16777215, found -1");
  wrong.erase("special_tokens");
  refused(wrong, "token '<s>' has no array 'ids'");
  wrong["single"][0] = "$A";
  refused(wrong, "expected a SpecialToken or the Sequence A, found \"$A\"");
}

// All as in tokenizers 0.22.
json added(int id, const std::string& text, const json& more = json::object()) {
  json out = {{"id", id}, {"content", text}};
  out.update(more);
  return out;
}

TEST(ByteLevelFiles, AddedTokensAreFoundInTwoPasses) {
  EXPECT_EQ(read(changed("/added_tokens", {added(5, "tete", {{"normalized", true}}), added(6, "ete")})).encode("tete"),
            (Ids{0, 6}));
  // The next token may begin in the white space that one took with it.
  const auto stripping = read(changed("/added_tokens", {added(5, "<s>", {{"rstrip", true}}), added(6, "\n\n")}));
  EXPECT_EQ(stripping.encode("<s>\n\nt"), (Ids{5, 6, 0}));
  EXPECT_EQ(stripping.encode("<s> \n\nt"), (Ids{5, 6, 0}));
}

// Linear in the text, although each of these takes all the white space behind it.
TEST(ByteLevelFiles, BlanksThatAreTokens) {
  const auto blanks = read(changed("/added_tokens", {added(5, " ", {{"rstrip", true}}), added(6, "\n")}));
  const std::string text = std::string(200000, ' ') + "\n" + std::string(200000, ' ') + "t";
  const Ids ids = blanks.encode(text);
  EXPECT_EQ(std::ranges::count(ids, 5), 400000);
  EXPECT_EQ(std::ranges::count(ids, 6), 1);
  EXPECT_EQ(ids.back(), 0);
}

// Merges may make them in a text that may have control tokens, but not in others.
TEST(ByteLevelFiles, ControlTokensThatAreWordsToo) {
  json file = changed("/added_tokens", json::array({added(4, "Ġt", {{"special", true}})}));
  file["model"]["vocab"]["Ġt"] = 4;
  file["model"]["merges"].push_back("Ġ t");
  EXPECT_EQ(read(file).encode("e t"), (Ids{1, 4}));
  EXPECT_EQ(read(file).encode_ordinary("e t"), (Ids{1, 3, 0}));
  EXPECT_EQ(read(file).encode_marked("e t", "|"), (Ids{1, 3, 0}));
}

TEST(ByteLevelFiles, StepsAfterByteLevelAreRefused) {
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const auto sequence = [&](const json& list) {
    return changed("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", list}});
  };
  EXPECT_EQ(read(sequence({digits, bytes})).encode("te"), Ids{2});
  expect_error(ErrorKind::Model, "pre_tokenizer: 'Digits' after ByteLevel is not supported", [&] {
    read(sequence({bytes, digits}));
  });
}

TEST(ByteLevelFiles, FolderWithTokenizerJson) {
  const TempFolder folder;
  expect_error(ErrorKind::Model, "no tokenizer here: expected tokenizer.json, or vocab.json and merges.txt",
               [&] { ByteLevelTokenizer::from_folder(folder.path()); });
  put(folder / "tokenizer.json", tokenizer_json().dump());
  EXPECT_FALSE(ByteLevelTokenizer::from_folder(folder.path()).eos_id());
  put(folder / "tokenizer_config.json", R"({
    "added_tokens_decoder": {"5": {"content": "<s>", "special": true}, "7": {"content": "<e>", "special": true}},
    "bos_token": null, "eos_token": "<e>", "pad_token": {"content": "<s>"}, "chat_template": "{{ 1 }}"})");
  const auto tokenizer = ByteLevelTokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer.eos_id(), 7);
  EXPECT_EQ(tokenizer.pad_id(), 5);
  EXPECT_EQ(tokenizer.vocab_size(), 8);
  EXPECT_EQ(tokenizer.encode("t<e>"), (Ids{0, 7}));
  EXPECT_EQ(tokenizer.chat_template(), "{{ 1 }}");
  put(folder / "chat_template.jinja", "{{ 2 }}");
  EXPECT_EQ(ByteLevelTokenizer::from_folder(folder.path()).chat_template(), "{{ 2 }}");
}

TEST(ByteLevelFiles, ConfigsThatDoNotFit) {
  const TempFolder folder;
  put(folder / "tokenizer.json", tokenizer_json().dump());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"eos_token": "<none>"})", "eos_token: there is no token '<none>'"},
      {R"({"eos_token": 3})", "eos_token: expected a token, found 3"},
      {R"({"added_tokens_decoder": {"x": {"content": "<e>"}}})", "added_tokens_decoder: expected an id, found 'x'"},
      {R"({"added_tokens_decoder": {"9": {"content": "<s>"}}})", "'<s>' has id 9, but 5 in the tokenizer"},
      {R"({"chat_template": 3})", "chat_template: expected a string or an array, found number"},
      {R"([])", "expected an object, found array"}};
  for (const auto& [config, part] : cases) {
    put(folder / "tokenizer_config.json", config);
    expect_error(ErrorKind::Model, part, [&] { ByteLevelTokenizer::from_folder(folder.path()); });
    expect_error(ErrorKind::Model, "tokenizer_config.json", [&] { ByteLevelTokenizer::from_folder(folder.path()); });
  }
  put(folder / "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]})");
  EXPECT_EQ(ByteLevelTokenizer::from_folder(folder.path()).chat_template(), "b");
}

// Other files and settings beside tokenizer.json, as transformers 5.23 reads them.
TEST(ByteLevelFiles, ConfigsThatChangeTokens) {
  const TempFolder folder;
  put(folder / "tokenizer.json", tokenizer_json().dump());
  const auto with = [&](const std::string& config) {
    put(folder / "tokenizer_config.json", config);
    return ByteLevelTokenizer::from_folder(folder.path());
  };
  EXPECT_EQ(
      with(R"({"added_tokens_decoder": {"5": {"content": "<s>", "lstrip": true, "special": true}}})").encode("t <s>e"),
      (Ids{0, 5, 1}));
  EXPECT_EQ(with(R"({"additional_special_tokens": ["te"]})").encode_ordinary("te"), (Ids{0, 1}));
  const auto named = with(R"({"unk_token": "<s>", "image_token": {"content": "te"}, "bos_token": null,
                              "extra_special_tokens": {"tool": "<s>"}, "processor_token": 3})");
  EXPECT_EQ(named.named_tokens(),
            (std::map<std::string, std::string>{{"unk_token", "<s>"}, {"image_token", "te"}, {"tool", "<s>"}}));
  EXPECT_TRUE(named.is_special(2));
  for (const char* fine : {R"({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": false})",
                           R"({"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": true})",
                           R"({"split_special_tokens": false, "additional_special_tokens": ["<s>"]})"})
    EXPECT_EQ(with(fine).encode("te<s>"), (Ids{2, 5}));
  const std::vector<std::pair<const char*, const char*>> refused = {
      {R"({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": true})", "add_prefix_space is true, unlike in"},
      {R"({"split_special_tokens": true})", "split_special_tokens is not supported"},
      {R"({"additional_special_tokens": ["<x>"]})", "additional_special_tokens: there is no token '<x>'"},
      {R"({"extra_special_tokens": ["<x>"]})", "extra_special_tokens: there is no token '<x>'"},
      {R"({"image_token": "<x>"})", "image_token: there is no token '<x>'"}};
  for (const auto& [config, part] : refused) expect_error(ErrorKind::Model, part, [&, &c = config] { with(c); });
}

TEST(ByteLevelFiles, OlderFilesBesideTheTokenizer) {
  const TempFolder folder;
  put(folder / "tokenizer.json", tokenizer_json().dump());
  put(folder / "special_tokens_map.json", R"({"eos_token": "<s>", "pad_token": {"content": "<p>"}})");
  put(folder / "added_tokens.json", R"({"<p>": 6, "<tool>": 7, "<s>": 5})");
  const auto tokenizer = ByteLevelTokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.encode("t<tool><p>"), (Ids{0, 7, 6}));
  EXPECT_EQ(tokenizer.eos_id(), 5);
  EXPECT_EQ(tokenizer.pad_id(), 6);
  EXPECT_TRUE(tokenizer.is_special(6));
  EXPECT_FALSE(tokenizer.is_special(7));
  put(folder / "added_tokens.json", R"({"<p>": 6, "<tool>": 8})");
  expect_error(ErrorKind::Model, "added_tokens.json] '<tool>' has id 8, expected 7",
               [&] { ByteLevelTokenizer::from_folder(folder.path()); });
  put(folder / "added_tokens.json", R"({"<p>": 6})");
  // A configuration that lists the added tokens replaces both.
  put(folder / "tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  EXPECT_EQ(ByteLevelTokenizer::from_folder(folder.path()).pad_id(), std::nullopt);
  put(folder / "tokenizer_config.json", "{}");
  put(folder / "special_tokens_map.json", R"({"pad_token": "<none>"})");
  expect_error(ErrorKind::Model, "pad_token: there is no token '<none>'",
               [&] { ByteLevelTokenizer::from_folder(folder.path()); });
}

TEST(ByteLevelFiles, FolderWithTwoFiles) {
  const TempFolder folder;
  put(folder / "vocab.json", R"({"t": 0, "e": 1, "te": 2, "1": 3})");
  put(folder / "merges.txt", "#version: 0.2\nt e\r\n");
  expect_error(ErrorKind::Model,
               "need a tokenizer_config.json whose tokenizer_class is Qwen2Tokenizer or GPT2Tokenizer",
               [&] { ByteLevelTokenizer::from_folder(folder.path()); });
  put(folder / "tokenizer_config.json",
      R"({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"4": {"content": "<|im_end|>", "special": true}}})");
  EXPECT_EQ(ByteLevelTokenizer::from_folder(folder.path()).encode("te1<|im_end|>"), (Ids{2, 3, 4}));
  put(folder / "merges.txt", "t e\ntt\n");
  expect_error(ErrorKind::Model, "merges.txt, line 2", [&] { ByteLevelTokenizer::from_folder(folder.path()); });
}

struct GgufTokens {
  std::string model = "gpt2", pre = "qwen2";
  std::vector<std::string> tokens = {"t", "e", "te", "<|im_end|>", "<tool>"}, merges = {"t e"};
  std::vector<int32_t> types = {1, 1, 1, 3, 4};
  uint32_t eos = 3;
  bool ends = false;  // whether every text does

  GgufBytes bytes() const {
    GgufBytes out;
    out.header(0, 7).string_key("tokenizer.ggml.model", model).string_key("tokenizer.ggml.pre", pre);
    out.key("tokenizer.ggml.tokens", GgufType::Array).number<uint32_t>(8).number<uint64_t>(tokens.size());
    for (const std::string& t : tokens) out.text(t);
    out.key("tokenizer.ggml.merges", GgufType::Array).number<uint32_t>(8).number<uint64_t>(merges.size());
    for (const std::string& m : merges) out.text(m);
    out.key("tokenizer.ggml.token_type", GgufType::Array).number<uint32_t>(5).number<uint64_t>(types.size());
    for (const int32_t t : types) out.number(t);
    out.key("tokenizer.ggml.eos_token_id", GgufType::U32).number(eos);
    out.key("tokenizer.ggml.add_eos_token", GgufType::Bool).number<uint8_t>(ends);
    return out;
  }
};

TEST(ByteLevelFiles, GgufMetadata) {
  const GgufBytes bytes = GgufTokens{}.bytes();
  const auto tokenizer = ByteLevelTokenizer::from_gguf(bytes.read());
  EXPECT_EQ(tokenizer.encode("te<tool>t<|im_end|>"), (Ids{2, 4, 0, 3}));
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_FALSE(tokenizer.is_special(4));
  EXPECT_EQ(tokenizer.eos_id(), 3);
  const auto refuse = [](const GgufTokens& t, const std::string& part) {
    const GgufBytes made = t.bytes();
    expect_error(ErrorKind::Model, part, [&] { ByteLevelTokenizer::from_gguf(made.read()); });
  };
  refuse({.model = "llama"}, "tokenizer.ggml.model: expected gpt2, found 'llama'");
  refuse({.pre = "deepseek-llm"},
         "tokenizer.ggml.pre 'deepseek-llm' is not supported; expected gpt-2, qwen2, llama-bpe or smollm");
  refuse({.types = {1, 1}}, "tokenizer.ggml.token_type has 2 entries for 5 tokens");
  refuse({.tokens = {"t", "e", "te", "t", "x"}, .types = {1, 1, 1, 1, 1}}, "token 't' occurs twice");
  refuse({.eos = 5}, "tokenizer.ggml.eos_token_id: expected an id below 5, found 5");
  refuse({.merges = {"te"}}, "tokenizer.ggml.merges] expected two symbols");
  refuse({.tokens = {}, .types = {}}, "expected 1 to");
  refuse({.ends = true}, "tokenizer.ggml.add_eos_token is true: a token after the text is not supported");
}

// A GGUF's tokenizer written as transformers' files is the same tokenizer.
TEST(ByteLevelFiles, FilesOfAGguf) {
  const std::string text = "te<tool>t 12<|im_end|> te  t\n<|im_start|>et";
  for (const char* pre : {"gpt-2", "qwen2", "llama-bpe", "smollm"}) {
    const GgufBytes bytes = GgufTokens{.pre = pre}.bytes();
    const auto want = ByteLevelTokenizer::from_gguf(bytes.read());
    const TempFolder folder;
    for (const auto& [name, content] : ByteLevelTokenizer::files_of_gguf(bytes.read())) put(folder / name, content);
    const auto got = ByteLevelTokenizer::from_folder(folder.path());
    EXPECT_EQ(got.encode(text), want.encode(text)) << pre;
    EXPECT_EQ(got.prefix(), want.prefix()) << pre;
    EXPECT_EQ(got.eos_id(), want.eos_id());
    EXPECT_EQ(got.vocab_size(), want.vocab_size());
    EXPECT_TRUE(got.is_special(3));
    EXPECT_FALSE(got.is_special(4));
  }
}

}  // namespace
