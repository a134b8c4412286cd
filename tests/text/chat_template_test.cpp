// Chat templates against Jinja as configured by transformers (fixture made by tools/fixtures/chat_templates.py), golden
// texts of Qwen2.5, Qwen3 and SmolLM2, and limits on what a template may do.
#include <ctime>

#include "tenon/io/chat_template.h"
#include "tenon/io/files.h"
#include "tenon/io/gguf.h"
#include "tests/io/io_test_tools.h"
#include "tests/support/sanitized.h"
#include "tests/text/real_vocabularies.h"

namespace {
using namespace io_test;
using namespace tenon;
using nlohmann::ordered_json;

const ordered_json& conversations() {
  static const ordered_json value = ordered_json::parse(read_file(fixture("chat/conversations.json")));
  return value;
}

ChatTemplate of_text(const std::string& source) { return ChatTemplate::compile(source, "test"); }
ChatTemplate of_file(const fs::path& path) { return ChatTemplate::compile(read_file(path), path.filename().string()); }
ChatTemplate in_tree(const std::string& name) { return of_file(fixture("chat/" + name + ".jinja")); }
std::string render(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  return of_text(source).render(variables);
}

std::string hash_of(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  char out[20];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(h));
  return out;
}

void expect_recorded(const ChatTemplate& chat, const std::string& name) {
  const ordered_json& expected = conversations()["rendered"][name];
  ASSERT_EQ(expected.size(), 300u);
  size_t texts = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    std::string text, got;
    try {
      text = chat.render(conversations()["conversations"][i]);
      got = hash_of(text);
      ++texts;
    } catch (const Error& e) {
      text = e.what();
      got = e.kind() == ErrorKind::Usage ? "error" : e.what();
    }
    ASSERT_EQ(got, expected[i].get<std::string>())
        << name << ", conversation " << i << ": " << conversations()["conversations"][i].dump() << "\n"
        << text;
  }
  EXPECT_GT(texts, 100u);
}

class InTreeTemplates : public testing::TestWithParam<const char*> {};
TEST_P(InTreeTemplates, EqualJinjaOnRandomConversations) { expect_recorded(in_tree(GetParam()), GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, InTreeTemplates, testing::Values("qwen25", "qwen3", "smollm2", "headers", "zoo"));

class PublishedTemplates : public testing::TestWithParam<const char*> {};
TEST_P(PublishedTemplates, EqualJinjaOnRandomConversations) {
  const fs::path path = vocabulary_folder() / "chat" / (std::string(GetParam()) + ".jinja");
  if (!fs::exists(path)) GTEST_SKIP() << "no " << path << ": run tools/get_chat_templates.sh";
  expect_recorded(of_file(path), std::string("published/") + GetParam());
}
INSTANTIATE_TEST_SUITE_P(All, PublishedTemplates,
                         testing::Values("qwen2_5", "qwen3", "qwen3_instruct_2507", "llama3", "llama3_1", "llama3_2",
                                         "smolvlm"));

// The same golden texts for the templates in the tree and, if fetched, the published ones.
std::vector<ChatTemplate> family(const char* own, const char* published) {
  std::vector<ChatTemplate> out = {in_tree(own)};
  const fs::path path = vocabulary_folder() / "chat" / (std::string(published) + ".jinja");
  if (fs::exists(path)) out.push_back(of_file(path));
  return out;
}

ordered_json turn(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}
ordered_json chat(std::vector<ordered_json> messages, bool generate = true) {
  return {{"messages", std::move(messages)}, {"add_generation_prompt", generate}};
}
ordered_json with(ordered_json variables, const std::string& key, const ordered_json& value) {
  variables[key] = value;
  return variables;
}

const ordered_json kTools = ordered_json::parse(R"([{"type":"function","function":{"name":"sum","z":1,"a":"é <b>"}}])");
const std::string kToolsText =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "
    "signatures within <tools></tools> XML tags:\n<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"sum\", "
    "\"z\": 1, \"a\": \"é <b>\"}}\n</tools>\n\nFor each function call, return a json object with function name and "
    "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call><|im_end|>\n";
const std::string kQwenSystem =
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

TEST(ChatTemplate, GoldenQwen25) {
  for (const ChatTemplate& qwen : family("qwen25", "qwen2_5")) {
    EXPECT_EQ(qwen.render(chat({turn("user", "Hi")})),
              kQwenSystem + "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(qwen.render(chat({turn("system", ""), turn("user", "Hi")}, false)),
              "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
    EXPECT_EQ(qwen.render(with(chat({turn("user", "Hi")}), "tools", kTools)),
              kQwenSystem + "\n\n" + kToolsText + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    ordered_json called = turn("assistant", "");
    called["tool_calls"] = {
        {{"type", "function"}, {"function", {{"name", "sum"}, {"arguments", {{"b", 1}, {"a", 2.5}}}}}}};
    EXPECT_EQ(
        qwen.render(chat({turn("user", "1+2"), called, turn("tool", "3"), turn("tool", "4")}, false)),
        kQwenSystem +
            "<|im_end|>\n<|im_start|>user\n1+2<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"sum\", "
            "\"arguments\": {\"b\": 1, \"a\": 2.5}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n3\n"
            "</tool_response>\n<tool_response>\n4\n</tool_response><|im_end|>\n");
  }
}

TEST(ChatTemplate, GoldenQwen3) {
  for (const ChatTemplate& qwen : family("qwen3", "qwen3")) {
    const ordered_json hi = chat({turn("user", "Hi")});
    const std::string text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(qwen.render(hi), text);
    EXPECT_EQ(qwen.render(with(hi, "enable_thinking", true)), text);
    EXPECT_EQ(qwen.render(with(hi, "enable_thinking", false)), text + "<think>\n\n</think>\n\n");
    EXPECT_EQ(qwen.render(with(hi, "tools", kTools)), "<|im_start|>system\n" + kToolsText + text);
    EXPECT_EQ(qwen.render(with(chat({turn("system", "Be brief."), turn("user", "Hi")}), "tools", kTools)),
              "<|im_start|>system\nBe brief.\n\n" + kToolsText + text);
    // Thinking of earlier turns is dropped, that of the last one kept.
    EXPECT_EQ(qwen.render(chat({turn("user", "a"), turn("assistant", "<think>\nhm\n</think>\n\nb"), turn("user", "c"),
                                turn("assistant", "<think>\nso\n</think>\n\nd")},
                               false)),
              "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
              "<|im_start|>assistant\n<think>\nso\n</think>\n\nd<|im_end|>\n");
    EXPECT_EQ(qwen.render(chat({turn("user", "a"), turn("assistant", "b")}, false)),
              "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nb<|im_end|>\n");
  }
}

TEST(ChatTemplate, GoldenSmolLm2) {
  const std::string expected =
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\nWhat is 7 plus 5?<|im_end|>\n<|im_start|>assistant\n";
  const ordered_json question = chat({turn("user", "What is 7 plus 5?")});
  EXPECT_EQ(in_tree("smollm2").render(question), expected);
  const auto path = real_smollm2();
  if (!path) GTEST_SKIP() << "no SmolLM2 in " << vocabulary_folder() << ": run tools/get_smollm2.sh";
  const ByteLevelTokenizer smollm = ByteLevelTokenizer::from_gguf(GgufFile::open(*path));
  ASSERT_TRUE(smollm.chat_template());
  EXPECT_EQ(of_text(*smollm.chat_template()).render(question), expected);
}

TEST(ChatTemplate, WhiteSpaceAroundTags) {
  EXPECT_EQ(render("a\n  {% if true %}\n b\n  {% endif %}\nc\n"), "a\n b\nc");
  EXPECT_EQ(render("a\n  {%+ if true %}\n b{% endif +%}\nc\n\n"), "a\n   b\nc\n");
  EXPECT_EQ(render("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(render("  {{ 1 }}\n  {# gone #}\nx"), "  1\nx");
  EXPECT_EQ(render("a {#- x -#} b"), "ab");
  EXPECT_EQ(render("a\r\nb\rc\r\n"), "a\nb\nc");
  EXPECT_EQ(render("{{ '}}' }}{{ {'a': {'b': 1}}['a'] }}"), "}}{'b': 1}");
}

TEST(ChatTemplate, ItemsOfAMappingAreWrittenAsPythonsTuples) {
  const ordered_json d = {{"d", {{"b", 1}, {"a", {"x", nullptr}}}}};
  EXPECT_EQ(render("{{ d|dictsort }}", d), "[('a', ['x', None]), ('b', 1)]");
  EXPECT_EQ(render("{{ d|items|list }}{{ d.items()|list|last|string }}", d),
            "[('b', 1), ('a', ['x', None])]('a', ['x', None])");
  EXPECT_EQ(render("{{ d|dictsort|tojson }}", d), R"([["a", ["x", null]], ["b", 1]])");
  EXPECT_EQ(render("{{ d|dictsort|last == ['b', 1] }} {{ d|dictsort|last == d|items|first }}", d), "False True");
  EXPECT_EQ(render("{{ d|dictsort|last|list }}{% for k, v in d.items() %} {{ k }}{% endfor %}", d), "['b', 1] b a");
}

TEST(ChatTemplate, WhatATemplateRefusesIsAUsageError) {
  expect_error(ErrorKind::Usage, "[test] line 2: roles must alternate",
               [] { render("{% if true %}\n{{ raise_exception('roles must ' ~ 'alternate') }}{% endif %}"); });
  expect_error(ErrorKind::Usage, "'+' between a string and undefined 'content'", [] {
    render("{{ 'x' + m.content }}", {{"m", ordered_json::object()}});
  });
  expect_error(ErrorKind::Usage, "undefined 'm' has no 'content'", [] { render("{{ m.content }}"); });
  expect_error(ErrorKind::Usage, "invalid UTF-8 at byte 1", [] { render("{{ m }}", {{"m", "a\xff"}}); });
}

// Some need certain data: a template has to guard against them.
TEST(ChatTemplate, FaultsOfTheTemplate) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 1 // x.zero }}", "division by zero"},
      {"{{ 1 % 0 }}", "division by zero"},
      {"{{ 1 / 0 }}", "division by zero"},
      {"{{ [1, 2, 3][::0] }}", "a slice with step 0"},
      {"{{ 'abc'[::0] }}", "a slice with step 0"},
      {"{{ range(1, 2, 0) }}", "range() with step 0"},
      {"{{ 'a'.split('') }}", "an empty separator"},
      {"{{ nothing() }}", "undefined 'nothing' cannot be called"},
      {"{{ ([1] | map('string')) | length }}", "a generator has no length"},
      {"{% set x.a = 1 %}", "only a namespace's members can be set"}};
  for (const auto& [source, part] : cases)
    expect_error(ErrorKind::Model, part, [&source = source] { render(source, {{"x", {{"a", 1}, {"zero", 0}}}}); });
}

TEST(ChatTemplate, WhatIsNotOfTheSubsetIsRefusedWhenCompiled) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\n\n{% macro f() %}{% endmacro %}", "line 3: 'macro' is not supported"},
      {"{% include 'x' %}", "'include' is not supported"},
      {"{{ x | pprint }}", "there is no filter 'pprint'"},
      {"{{ x is callable }}", "there is no test 'callable'"},
      {"{{ ''.format(1) }}", "there is no method 'format'"},
      {"{{ x.mro() }}", "there is no method 'mro'"},
      {"{{ x()() }}", "only functions and methods can be called"},
      {"{% if x %}", "unterminated block; expected 'endif'"},
      {"{% endif %}", "unmatched 'endif'"},
      {"{% for x in y %}{% endif %}", "unmatched 'endif'"},
      {"{{ 'x }}", "unterminated string"},
      {"{{ (1 }}", "expected ')'"},
      {"{{ 1", "unterminated tag"},
      {"{# x", "unterminated comment"},
      {"{{ 1 ) }}", "unmatched ')'"},
      {"{{ $ }}", "unexpected character"},
      {"{{ 99999999999999999999 }}", "is too large"},
      {"{% break %}", "'break' outside of a loop"},
      {"\xff", "invalid UTF-8 at byte 0"},
      {"{{ " + std::string(1000, '(') + "1" + std::string(1000, ')') + " }}", "nested deeper than 100 levels"},
      {"{{ " + std::string(1000, '-') + "1 }}", "nested deeper than 100 levels"}};
  for (const auto& [source, part] : cases)
    expect_error(ErrorKind::Model, part, [&source = source] { of_text(source); });
  std::string chain = "{{ 1";
  for (int i = 0; i < 1000; ++i) chain += " + 1";
  expect_error(ErrorKind::Model, "an expression nested deeper than 100 levels", [&] { of_text(chain + " }}"); });
}

// Only data: attributes that escape Jinja's sandbox elsewhere are undefined here.
TEST(ChatTemplate, AttributesLeadNowhere) {
  for (const char* source : {"{{ ''.__class__ }}", "{{ x.__class__ }}", "{{ x['__class__'] }}", "{{ messages.append }}",
                             "{{ 1.real }}", "{{ none.x }}", "{{ x.a.__init__ }}"})
    EXPECT_EQ(render(source, {{"x", {{"a", "s"}}}, {"messages", ordered_json::array()}}), "") << source;
  expect_error(ErrorKind::Usage, "has no '__mro__'", [] { render("{{ ''.__class__.__mro__ }}"); });
  expect_error(ErrorKind::Model, "do not begin with '_'",
               [] { render("{% set n = namespace() %}{% set n._x = 1 %}"); });
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(ChatTemplate, TimeMemoryAndOutputAreBounded) {
  const std::string kLongKey = "{% set b = 'ab' * 2000000 %}{% set d = {'x': 1} %}";
  const std::vector<std::string> greedy = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set n = namespace(s='ab') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for a in range(99999) %}{% set n.s = [n.s] %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for a in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
      "{% set n = namespace(s=[1]) %}{% for a in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s == n.s[:] }}",
      "{{ 'x' * 999999999999 }}", "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}", "{{ range(1000000) }}",
      "{% set s = 'a' * 9999999 %}{% for a in range(99999) %}{% if s == 'a' * 1 ~ s %}{% endif %}{% endfor %}",
      "{% set s = 'a' * 999999 %}{% for a in range(99999) %}{% if 'ab' in s %}{% endif %}{% endfor %}",
      "{% set s = 'a' * 999999 %}{% for a in range(99999) %}{% if s[:500000] ~ 'b' in s %}{% endif %}{% endfor %}",
      "{{ 9223372036854775807 + 1 }}",
      // Empty loops, and names looked up in many scopes.
      "{% set l = range(99999) %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
      "{% set l = range(99999) %}{% for a in l %}{% for b in l if no %}{% endfor %}{% endfor %}",
      repeated("{% if 1 %}{% set q = 1 %}", 45) + repeated("{% for a in range(9) %}", 45) + "{{ q ~ q ~ q }}" +
          repeated("{% endfor %}", 45) + repeated("{% endif %}", 45),
      // Long keys, found or not.
      kLongKey + "{% set n = namespace(l=[]) %}{% for i in range(200) %}{% set n.l = n.l + [d[b]] %}{% endfor %}",
      kLongKey + "{% for i in range(9999) %}{% set q = d[b] is defined %}{% endfor %}",
      kLongKey + "{% for i in range(9999) %}{% set q = b in d %}{% endfor %}",
      kLongKey + "{% for i in range(9999) %}{% set q = d.get(b) %}{% endfor %}",
      kLongKey + "{% for i in range(9999) %}{% set q = {b: 1} %}{% endfor %}",
      kLongKey + "{% set e = {b: 1} %}{% for i in range(9999) %}{% set q = e == e %}{% endfor %}",
      kLongKey + "{% set n = namespace() %}{% for i in range(9999) %}{% set q = n[b] %}{% endfor %}",
      // Characters to strip, attributes of attributes, arguments of filters for every item.
      "{% set b = 'ab' * 500000 %}{% for i in range(9999) %}{{ ''.strip(b) }}{% endfor %}",
      "{% set b = 'ab' * 500000 %}{% for i in range(9999) %}{{ 'ab' | trim(b) }}{% endfor %}",
      "{% set n = namespace() %}{% set n.x = n %}{% set l = [n, n, n, n] %}{% for i in range(9999) %}{% set q = l | "
      "map(attribute='" +
          repeated("x.", 99999) + "x') | list %}{% endfor %}",
      "{% set b = ' ' * 4000000 %}{% for i in range(9999) %}{% set q = b | int %}{% endfor %}",
      "{% set l = range(99999) %}{% for a in range(99) %}{% set q = l | map('default'" + repeated(", 1", 2000) +
          ") %}{% endfor %}",
      "{{ " + std::string(129, 'x') + " }}"};
  for (const std::string& source : greedy) {
    const std::clock_t start = std::clock();
    EXPECT_EQ(error_of([&] { render(source); }).kind(), ErrorKind::Model) << source.substr(0, 300);
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, sanitized() ? 50 : 5)
        << source.substr(0, 300);
  }
  // Namespaces that contain themselves are freed anyway.
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.me = [n] %}{{ n.me | length }}"), "1");
}

TEST(ChatTemplate, LongConversationsRender) {
  std::vector<ordered_json> messages;
  for (int i = 0; i < 5000; ++i) messages.push_back(turn(i % 2 ? "assistant" : "user", std::string(500, 'x')));
  for (const char* name : {"qwen25", "qwen3", "smollm2"})
    EXPECT_GT(in_tree(name).render(chat(messages)).size(), 2'500'000u);
}

}  // namespace
