// Expressions as text: the format, parsing, and one test for each thing that the parser refuses.
#include <gtest/gtest.h>

#include "tests/expr/samples.h"

namespace tenon {
namespace {

TEST(Text, Format) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {2, 8, 8, 4}),
             w = param(g, "unet.conv_in.weight", DType::F32, {6, 4, 3, 3});
  const Expr y = conv2d(clamp(silu(x), -1, 1e-3), w, 2, {1, 1, 1, 1});
  EXPECT_EQ(print(y),
            "%0 = input<\"x\",bf16,[2,8,8,4],3>()\n"
            "%1 = silu(%0)\n"
            "%2 = clamp<-1.0,0.001>(%1)\n"
            "%3 = param<\"unet.conv_in.weight\",f32,[6,4,3,3]>()\n"
            "%4 = conv2d<2,1,1,1,1>(%2, %3)\n"
            "return %4\n");
  EXPECT_EQ(print_node(y, [](const Expr& e) { return std::string(e->name()); }), "conv2d<2,1,1,1,1>(clamp, param)");
  EXPECT_EQ(
      print(std::array{w, x, w}),
      "%0 = param<\"unet.conv_in.weight\",f32,[6,4,3,3]>()\n%1 = input<\"x\",bf16,[2,8,8,4],3>()\nreturn %0, %1, %0\n");
  EXPECT_EQ(print(std::span<const Expr>()), "return\n");
}

TEST(Text, NumbersReadBackToTheBit) {
  Graph g, h;
  for (double x :
       {0.0, -0.0, 1.0, -3.0, 0.1, 1e22, 1e-300, 5e-324, 1.7976931348623157e308, 1.0 / 3, 123456789.0, 2e15}) {
    const std::string text = print(constant(g, x));
    EXPECT_EQ(std::bit_cast<uint64_t>(parse(h, text)[0]->attrs.nums[0]), std::bit_cast<uint64_t>(x)) << text;
  }
  EXPECT_EQ(print(constant(g, 2)), "%0 = constant<2.0>()\nreturn %0\n");
  EXPECT_EQ(print(constant(g, -0.0)), "%0 = constant<-0.0>()\nreturn %0\n");
  EXPECT_EQ(print(constant(g, INFINITY)), "%0 = constant<inf>()\nreturn %0\n");
  EXPECT_EQ(print(constant(g, -INFINITY)), "%0 = constant<-inf>()\nreturn %0\n");
  EXPECT_EQ(print(constant(g, std::nan(""))), "%0 = constant<nan>()\nreturn %0\n");
  EXPECT_EQ(parse(h, "%0 = constant<-inf>()\nreturn %0")[0]->attrs.nums[0], -INFINITY);
  EXPECT_TRUE(std::isnan(parse(h, "%0 = constant<nan>()\nreturn %0")[0]->attrs.nums[0]));
}

TEST(Text, AnyBytesSurviveAsAName) {
  Graph g, h;
  std::string name = "a\"b\\c\n%>";
  for (int c = 0; c < 256; ++c) name += static_cast<char>(c);
  const std::string text = print(input(g, name, DType::F32, {1}));
  for (char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
  EXPECT_EQ(parse(h, text)[0]->attrs.text, name);
  EXPECT_NE(print(input(g, "tab\t", DType::F32, {})).find("\"tab\\x09\""), std::string::npos);
}

void expect_round_trip(std::span<const Expr> roots) {
  const std::string text = print(roots);
  Graph h;
  const std::vector<Expr> back = parse(h, text);
  EXPECT_EQ(print(back), text);
  ASSERT_EQ(back.size(), roots.size());
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].shape(), roots[i].shape()) << text;
    EXPECT_EQ(back[i].dtype(), roots[i].dtype()) << text;
    EXPECT_EQ(back[i]->rate, roots[i]->rate) << text;
  }
  // Parsed into the graph it came from, it gives the same nodes.
  const std::vector<Expr> same = parse(roots[0].graph(), text);
  EXPECT_TRUE(std::equal(same.begin(), same.end(), roots.begin())) << text;
}

TEST(Text, EveryPointwiseViewAndReduceNodeReadsBack) {
  for (Family family : {Family::Pointwise, Family::View, Family::Reduce})
    for (const NodeType* type : testing::types_of(family)) {
      Graph g;
      const std::vector<Expr> nodes = testing::sample_nodes(g, *type, 8);
      ASSERT_FALSE(nodes.empty()) << type->name;
      expect_round_trip(nodes);
    }
}

TEST(Text, LeavesAnchorsAndSinksReadBack) {
  Graph g;
  const Expr x = input(g, "x", DType::F16, {1, 6, 6, 4}, Rate::Prompt), s = scalar(g, "s", DType::I32, Rate::Schedule);
  const Expr cache = state(g, "cache", DType::BF16, {1, 2, 5, 4}), table = param(g, "table", DType::E4M3, {9, 4});
  const Expr q = reshape(gather(table, iota(g, 8)), {1, 2, 4, 4});
  expect_round_trip(std::array{attention(q, cache, cache, 0.125), linear(gather(table, s), table),
                               conv2d(x, param(g, "w", DType::F32, {3, 4, 3, 3}), 1, {1, 1, 1, 1}),
                               update_rows(cache, iota(g, 1), cache)});
}

TEST(Text, SpacesAndEmptyLinesAreFree) {
  Graph g;
  const std::vector<Expr> y =
      parse(g, "\n  %0=input< \"x\" , f32,[ 2, 3 ] ,3 >( )\n\n %1 = add(%0,%0)\nreturn %1 ,%0\n \n");
  ASSERT_EQ(y.size(), 2u);
  EXPECT_EQ(y[0], y[1] + y[1]);
}

TEST(Text, EqualLinesAreOneNode) {
  Graph g;
  const std::vector<Expr> y = parse(g, "%0 = iota<[3]>()\n%1 = iota<[3]>()\nreturn %0, %1\n");
  EXPECT_EQ(y[0], y[1]);
}

void expect_refused(const std::string& text, const std::string& message) {
  Graph g;
  try {
    parse(g, text);
    ADD_FAILURE() << "accepted: " << text.substr(0, 200);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Usage);
    EXPECT_EQ(e.what(), "[parse] " + message) << text.substr(0, 200);
  }
}

TEST(ParseError, NoReturn) {
  expect_refused("", "the text ends without 'return'");
  expect_refused("%0 = iota<[3]>()\n", "the text ends without 'return'");
}
TEST(ParseError, NeitherNodeNorReturn) {
  expect_refused("x", "line 1, column 1: expected '%' or 'return', found 'x'");
  expect_refused("\nreturned", "line 2, column 9: expected '%' or 'return', found the end of the line");
}
TEST(ParseError, TextBehindReturn) { expect_refused("return\nx", "line 1, column 7: text follows 'return'"); }
TEST(ParseError, NodesOutOfOrder) {
  expect_refused("%1 = iota<[3]>()", "line 1, column 3: expected node %0, found %1");
}
TEST(ParseError, NodeNumber) {
  expect_refused("%x = iota<[3]>()", "line 1, column 2: expected a node number after '%', found 'x = iota<[3]>()'");
  expect_refused("%99999999999999999999 = iota<[3]>()",
                 "line 1, column 22: '99999999999999999999' is not a whole number from 0 to 2^53");
}
TEST(ParseError, OperandNotDefined) {
  expect_refused("%0 = silu(%0)", "line 1, column 13: %0 is not defined above");
  expect_refused("return %0", "line 1, column 10: %0 is not defined above");
}
TEST(ParseError, NoEqualsSign) {
  expect_refused("%0 iota<[3]>()", "line 1, column 4: expected '=', found 'iota<[3]>()'");
}
TEST(ParseError, NodeName) {
  expect_refused("%0 = ()", "line 1, column 6: expected the name of a node, found '()'");
  expect_refused("%0 = flux_capacitor()", "line 1, column 20: there is no node named 'flux_capacitor'");
}
TEST(ParseError, Operands) {
  expect_refused("%0 = iota<[3]>(", "line 1, column 16: expected '%', found the end of the line");
  expect_refused("%0 = iota<[3]>\n", "line 1, column 15: expected '(', found the end of the line");
  expect_refused("%0 = iota<[3]>()\n%1 = silu(%0", "line 2, column 13: expected ')', found the end of the line");
  expect_refused("%0 = iota<[3]>() x", "line 1, column 18: expected the end of the line, found 'x'");
}
TEST(ParseError, AttributeList) {
  expect_refused("%0 = iota<>()", "line 1, column 11: expected an attribute, found '>()'");
  expect_refused("%0 = iota<[3>()", "line 1, column 13: expected ']', found '>()'");
  expect_refused("%0 = iota<[3]()", "line 1, column 14: expected '>', found '()'");
  expect_refused("%0 = iota<[x]>()", "line 1, column 13: 'x' is not a whole number from 0 to 2^53");
  expect_refused("%0 = iota<[-1]>()", "line 1, column 14: '-1' is not a whole number from 0 to 2^53");
  expect_refused("%0 = iota<[1,1,1,1,1,1,1,1,1]>()", "line 1, column 28: a shape of more than 8 extents");
}
TEST(ParseError, AttributeOrder) {
  expect_refused("%0 = input<f32,\"x\">()", "line 1, column 16: text is out of order");
  expect_refused("%0 = input<\"x\",[3],f32>()", "line 1, column 23: the element type 'f32' is out of order");
  expect_refused("%0 = input<\"x\",f32,bf16>()", "line 1, column 24: the element type 'bf16' is out of order");
  expect_refused("%0 = input<\"x\",f32,[3],[3]>()", "line 1, column 24: a shape is out of order");
  expect_refused("%0 = input<\"x\",f32,3,[3]>()", "line 1, column 22: a shape is out of order");
  expect_refused("%0 = clamp<1.0,1>()", "line 1, column 17: the whole number 1 is out of order");
}
TEST(ParseError, ElementType) {
  expect_refused("%0 = input<\"x\",float32,[3]>()", "line 1, column 23: write the element type as f32");
  expect_refused(
      "%0 = input<\"x\",f99,[3]>()",
      "line 1, column 19: [dtype] unknown element type 'f99'; expected one of f64, f32, f16, bf16, e4m3, i64, i32, "
      "i16, i8, u8, bool");
}
TEST(ParseError, Numbers) {
  expect_refused("%0 = constant<1.5.2>()", "line 1, column 20: '1.5.2' is not a number");
  expect_refused("%0 = constant<1e999>()", "line 1, column 20: '1e999' is not a number");
  expect_refused("%0 = constant<9007199254740993>()",
                 "line 1, column 31: '9007199254740993' is not a whole number from -9007199254740992 to 2^53");
}
TEST(ParseError, Strings) {
  expect_refused("%0 = input<\"x", "line 1, column 14: unterminated quoted text");
  expect_refused("%0 = input<\"\">()", "line 1, column 14: an empty text");
  expect_refused("%0 = input<\"\t\">()",
                 "line 1, column 14: a byte in quotes that is not printable ASCII; write it as \\xHH");
  for (const char* bad : {"\\n", "\\x", "\\x4", "\\xAB", "\\x4g"})
    expect_refused("%0 = input<\"" + std::string(bad) + "\">()",
                   "line 1, column 14: expected \\\", \\\\ or \\xHH with lower-case digits, found '" +
                       (std::string(bad).substr(1) + "\">()") + "'");
}
TEST(ParseError, Limits) {
  std::string many = "%0 = permute<0", wide = "%0 = iota<[3]>()\n%1 = concat<0>(%0";
  for (int i = 0; i < 5000; ++i) many += ",0", wide += ",%0";
  expect_refused(many + ">()", "line 1, column 8207: more than 4096 attributes");
  expect_refused(wide + ")", "line 2, column 12306: more than 4096 operands");
}
TEST(ParseError, WhatTheNodeRefuses) {
  expect_refused("%0 = iota<[3]>()\n%1 = permute<1>(%0)\nreturn %1",
                 "line 2, column 20: [permute] axes are not a permutation of the 1 axes of [3]");
  expect_refused("%0 = silu()", "line 1, column 12: [silu] expected 1 operands, got silu()");
}

}  // namespace
}  // namespace tenon
