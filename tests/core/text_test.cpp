// Untrusted text in messages, errors and log lines: one short line that is safe for a terminal.
#include "tenon/core/text.h"

#include <gtest/gtest.h>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"

namespace {
using namespace tenon;

TEST(Escaped, WhatATerminalObeysOrHides) {
  EXPECT_EQ(escaped("plain, ünïcode, 猫, \U0001f468\u200d\U0001f469"),
            "plain, ünïcode, 猫, \U0001f468\u200d\U0001f469");
  EXPECT_EQ(escaped(std::string("a\nb\tc\rd\0e", 9)), "a\\nb\\tc\\rd\\x00e");
  EXPECT_EQ(escaped("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(escaped("\u0085\u009b"), "\\u0085\\u009b");
  EXPECT_EQ(escaped("a\u202egnp.exe"), "a\\u202egnp.exe");
  EXPECT_EQ(escaped("\u2066\u2069\u061c\u200e\u2028\ufeff\u200b\u00ad"),
            "\\u2066\\u2069\\u061c\\u200e\\u2028\\ufeff\\u200b\\u00ad");
  EXPECT_EQ(escaped("\U000e0041"), "\\U000e0041");
  EXPECT_EQ(escaped("a\xff\xc3(\xed\xa0\x80"), "a\\xff\\xc3(\\xed\\xa0\\x80");
  EXPECT_EQ(escaped("C:\\a\\n"), "C:\\a\\n");
}

TEST(Shown, KeepsBothEnds) {
  EXPECT_EQ(shown("short"), "short");
  EXPECT_EQ(shown("0123456789", 10), "0123456789");
  const std::string text = shown("begin" + std::string(1000000, 'x') + "end", 40);
  EXPECT_EQ(text.size(), 40u);
  EXPECT_TRUE(text.starts_with("beginx")) << text;
  EXPECT_TRUE(text.ends_with("xend")) << text;
  EXPECT_NE(text.find(" .. "), std::string::npos);
}

TEST(Shown, NeverCutsACharacterOrAnEscape) {
  std::string foreign;
  for (int i = 0; i < 60; ++i) foreign += "猫\x1b\xff\u202ea";
  for (size_t most = 8; most < 400; ++most) {
    const std::string text = shown(foreign, most);
    EXPECT_LE(text.size(), most);
    EXPECT_FALSE(first_invalid_utf8(text)) << text;
    for (size_t at = text.find('\\'); at != std::string::npos; at = text.find('\\', at + 1))
      EXPECT_TRUE(text.compare(at, 4, "\\x1b") == 0 || text.compare(at, 4, "\\xff") == 0 ||
                  text.compare(at, 6, "\\u202e") == 0)
          << text;
  }
}

TEST(AsUtf8, ChangesOnlyWhatIsNotUtf8) {
  EXPECT_EQ(as_utf8("a\x1b\u202e猫"), "a\x1b\u202e猫");
  EXPECT_EQ(as_utf8("a\xff猫"), "a\\xff猫");
}

TEST(ErrorText, IsOneShortLine) {
  const std::string name(5000, 'n'), value = std::string(3000, 'v') + "\x1b[2J\n\u202e";
  const Error e(ErrorKind::Model, "/models/" + name + "/config.json", "'key' is " + value + ", expected a number",
                "hint " + name);
  const std::string_view text = e.what();
  EXPECT_LE(text.size(), kMessageBytes);
  EXPECT_EQ(text.find_first_of("\n\x1b"), text.npos);
  EXPECT_TRUE(text.starts_with("[/models/nnn"));
  for (const char* part : {"/config.json] 'key' is vvv", ", expected a number (hint nnn"})
    EXPECT_NE(text.find(part), text.npos) << text;
  EXPECT_EQ(e.where(), "/models/" + name + "/config.json");
}

TEST(ErrorText, AnotherKindSaysTheSame) {
  const Error e(ErrorKind::Model, "a", "b", "c"), usage = e.with_kind(ErrorKind::Usage);
  EXPECT_EQ(usage.kind(), ErrorKind::Usage);
  EXPECT_STREQ(usage.what(), "[a] b (c)");
}

}  // namespace
