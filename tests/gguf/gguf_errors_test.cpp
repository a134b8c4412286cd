// Invalid GGUF files: one error each that names what is wrong, without time or memory beyond the file's size.
#include <sys/resource.h>

#include <chrono>

#include "tenon/io/gguf_checkpoint.h"
#include "tenon/pipelines/families/z_image/tensor_names.h"
#include "tests/gguf/gguf_bytes.h"
#include "tests/io/io_test_tools.h"
#include "tests/support/sanitized.h"

namespace {
using namespace io_test;
using namespace tenon;
using gguf_test::GgufBytes;

constexpr uint32_t kF32 = 0, kQ4_1 = 3, kQ2_K = 10;

void expect_refused(const GgufBytes& file, const std::string& part) {
  expect_error(ErrorKind::Model, "[test.gguf] ", [&] { file.read(); });
  expect_error(ErrorKind::Model, part, [&] { file.read(); });
}

GgufBytes one_tensor(const std::vector<uint64_t>& shape, uint32_t type, uint64_t offset, size_t data) {
  GgufBytes out;
  out.header(1, 0).tensor("w", shape, type, offset).data(data);
  return out;
}

TEST(GgufErrors, Header) {
  expect_refused(GgufBytes(), "not a GGUF file");
  expect_refused(GgufBytes().raw("GGUX").raw(std::string(40, '\0')), "not a GGUF file");
  expect_refused(GgufBytes().header(0, 0, 1), "GGUF version 1 is not supported");
  expect_refused(GgufBytes().header(0, 0, 0x03000000), "(a big-endian file?)");
  expect_refused(GgufBytes().header(0, 1).raw("abcdefgh"), "cannot hold them");
  expect_refused(GgufBytes().header(~uint64_t{0}, 0).data(100), "cannot hold them");
  expect_refused(GgufBytes().header(0, uint64_t{1} << 63).data(100), "cannot hold them");
  EXPECT_EQ(GgufBytes().header(0, 0, 2).read().version(), 2u);
}

TEST(GgufErrors, Metadata) {
  const GgufType string = GgufType::String, array = GgufType::Array;
  expect_refused(GgufBytes().header(0, 1).key("k", string).number<uint64_t>(100).raw("abc"),
                 "needs 100 bytes, 3 follow");
  expect_refused(GgufBytes().header(0, 1).key("k", string).number(~uint64_t{0}).raw("abc"), "follow");
  expect_refused(GgufBytes().header(0, 1).number(~uint64_t{0}).raw("abcdefghijk"), "metadata key");
  expect_refused(GgufBytes().header(0, 1).text("k").number<uint32_t>(13).raw("abc"), "metadata 'k': unknown type 13");
  expect_refused(GgufBytes().header(0, 1).key("k", array).number<uint32_t>(9).number<uint64_t>(1).raw("abc"),
                 "unknown type 9 of an array's elements");
  expect_refused(GgufBytes().header(0, 1).key("k", array).number<uint32_t>(10).number(uint64_t{1} << 61).raw("abc"),
                 "an array of 2305843009213693952 elements does not fit the 3 bytes");
  expect_refused(
      GgufBytes().header(0, 1).key("k", array).number<uint32_t>(8).number<uint64_t>(2).text("a").raw("bcdefghi"),
      "follow");
  expect_refused(GgufBytes().header(0, 2).string_key("k", "a").string_key("k", "b"), "metadata 'k' occurs twice");
  expect_refused(GgufBytes().header(0, 1).string_key("\xff", "a"), "invalid UTF-8");
  expect_refused(GgufBytes().header(0, 1).string_key(std::string(70000, 'k'), "a"), "has 70000 bytes; at most 65535");
  expect_refused(GgufBytes().header(0, 1).key("split.count", GgufType::U16).number<uint16_t>(3), "is one of 3 parts");
  GgufBytes bad;
  bad.header(0, 1).string_key("k", "ab\xff");
  expect_error(ErrorKind::Model, "k: invalid UTF-8 at byte 2", [&] { bad.read().string("k"); });
  expect_error(ErrorKind::Model, "has no metadata 'general.architecture'", [&] { bad.read().architecture(); });
}

TEST(GgufErrors, Tensors) {
  EXPECT_EQ(one_tensor({32, 3}, kQ4_1, 0, 60).read().at("w").shape, (Shape{3, 32}));
  EXPECT_EQ(one_tensor({}, kF32, 0, 4).read().at("w").shape, Shape{});
  EXPECT_EQ(one_tensor({0, 4}, kF32, 0, 0).read().at("w").data.size(), 0u);
  expect_refused(one_tensor({1, 1, 1, 1, 1}, kF32, 0, 4), "tensor 'w': 5 extents; at most 4");
  expect_refused(one_tensor({uint64_t{1} << 32, uint64_t{1} << 32}, kF32, 0, 64),
                 "more elements than can be addressed");
  expect_refused(one_tensor({0, uint64_t{1} << 32, uint64_t{1} << 32}, kF32, 0, 64), "more elements than can be");
  expect_refused(one_tensor({uint64_t{1} << 32, uint64_t{1} << 32, 0}, kF32, 0, 64), "more elements than can be");
  expect_refused(one_tensor({uint64_t{1} << 61}, kF32, 0, 64), "exceed the file's 64 bytes of data");
  expect_refused(one_tensor({uint64_t{1} << 62}, kF32, 0, 64), "more bytes than can be addressed");
  expect_refused(one_tensor({8}, 77, 0, 64), "tensor 'w': unknown element type 77");
  expect_refused(one_tensor({8}, 4, 0, 64), "unknown element type 4");
  expect_refused(one_tensor({33}, kQ4_1, 0, 64), "rows of 33 elements are not whole blocks of Q4_1 (32 elements)");
  expect_refused(one_tensor({8}, kF32, 8, 64), "offset 8 is not a multiple of the alignment, 32");
  expect_refused(one_tensor({32}, kF32, 0, 127),
                 "128 bytes at offset 0 exceed the file's 127 bytes of data (truncated?)");
  expect_refused(one_tensor({8}, kF32, ~uint64_t{31}, 64), "exceed the file's 64 bytes");
  GgufBytes twice;
  twice.header(2, 0).tensor("w", {8}, kF32, 0).tensor("w", {8}, kF32, 32).data(64);
  expect_refused(twice, "tensor 'w' occurs twice");
  GgufBytes overlapping;
  overlapping.header(2, 0).tensor("a", {16}, kF32, 0).tensor("b", {8}, kF32, 32).data(96);
  expect_refused(overlapping, "tensor 'b': offset 32 overlaps another tensor, which ends at 64");
  GgufBytes short_names;
  short_names.header(1, 0).text("weight").number<uint32_t>(2).number<uint64_t>(4);
  expect_refused(short_names, "truncated or corrupt");
}

TEST(GgufErrors, Alignment) {
  for (const uint32_t wrong : {0u, 3u, 48u, 1u << 21})
    expect_refused(GgufBytes().header(0, 1).key("general.alignment", GgufType::U32).number(wrong),
                   "expected a power of two");
  GgufBytes wide;
  wide.header(1, 1)
      .key("general.alignment", GgufType::U32)
      .number<uint32_t>(128)
      .tensor("w", {2}, kF32, 0)
      .data(8, 128);
  const GgufTensor tensor = wide.read().at("w");
  EXPECT_EQ((reinterpret_cast<const char*>(tensor.data.data()) - wide.bytes().data()) % 128, 0);
}

TEST(GgufErrors, TypesThatCannotBeConverted) {
  const GgufBytes bytes = one_tensor({256}, kQ2_K, 0, 84);
  const GgufFile file = bytes.read();
  EXPECT_EQ(file.unsupported().at("w"), "Q2_K");
  expect_error(ErrorKind::Model, "tensor 'w' has the element type Q2_K", [&] { file.at("w"); });
  expect_error(ErrorKind::Model, "there is no tensor 'x'", [&] { file.at("x"); });
}

TEST(GgufErrors, Checkpoint) {
  GgufBytes foreign;
  foreign.header(0, 1).string_key("general.architecture", "gpt2");
  expect_error(ErrorKind::Model, "architecture 'gpt2' is not supported; expected llama, qwen2 or qwen3",
               [&] { gguf_checkpoint(foreign.read()); });
  GgufBytes heads;
  heads.header(1, 2).string_key("general.architecture", "llama").key("llama.attention.head_count", GgufType::U32);
  heads.number<uint32_t>(3).tensor("blk.0.attn_q.weight", {8, 32}, kF32, 0).data(1024);
  expect_error(ErrorKind::Model, "32 rows do not split into 3 heads", [&] { gguf_checkpoint(heads.read()); });
  GgufBytes names;
  names.header(3, 1).string_key("general.architecture", "qwen3").tensor("blk.x.attn_q.weight", {8}, kF32, 0);
  names.tensor("blk.1.other.weight", {8}, kF32, 32).tensor("blk.1234567.attn_q.weight", {8}, kF32, 64).data(96);
  const GgufFile file = names.read();
  EXPECT_EQ(gguf_checkpoint(file).unexpected.size(), 3u);
  expect_error(ErrorKind::Model, "has no metadata 'qwen3.embedding_length'", [&] { gguf_config(file); });
  GgufBytes twice;
  twice.header(2, 1).string_key("general.architecture", "lumina2").tensor("x_embedder.bias", {8}, kF32, 0);
  twice.tensor("model.diffusion_model.x_embedder.bias", {8}, kF32, 32).data(64);
  expect_error(ErrorKind::Model, "two tensors map to 'all_x_embedder.2-1.bias'",
               [&] { lumina_checkpoint(twice.read()); });
}

// What would change the network's result is refused; redundant settings are not.
TEST(GgufErrors, WindowsAndPartlyRotatedHeads) {
  const auto config = [](const std::string& key, uint32_t value, const std::string& scaling = "none") {
    GgufBytes file;
    file.header(1, scaling.empty() ? 8 : 9).string_key("general.architecture", "llama");
    for (const auto& [name, number] : {std::pair{"embedding_length", 64},
                                       {"block_count", 1},
                                       {"feed_forward_length", 8},
                                       {"attention.head_count", 4},
                                       {"context_length", 128}})
      file.key(std::string("llama.") + name, GgufType::U32).number(static_cast<uint32_t>(number));
    file.key("llama.attention.layer_norm_rms_epsilon", GgufType::F32).number(1e-5f);
    if (!scaling.empty()) file.string_key("llama.rope.scaling.type", scaling);
    file.key("llama." + key, GgufType::U32).number(value).tensor("token_embd.weight", {64, 2}, kF32, 0).data(512);
    return gguf_config(file.read());
  };
  for (const uint32_t window : {0U, 128U, 4096U}) EXPECT_NO_THROW(config("attention.sliding_window", window));
  expect_error(ErrorKind::Model, "llama.attention.sliding_window: a window of 127 tokens is not supported",
               [&] { config("attention.sliding_window", 127); });
  EXPECT_NO_THROW(config("rope.dimension_count", 16));
  for (const uint32_t turned : {0U, 8U, 32U})
    expect_error(ErrorKind::Model, "llama.rope.dimension_count: " + std::to_string(turned) + " of the 16 numbers",
                 [&] { config("rope.dimension_count", turned); });
  // A factor without a kind is linear.
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    EXPECT_EQ(config(key, 4, "")["rope_scaling"]["rope_type"], "linear");
    EXPECT_FALSE(config(key, 1, "").contains("rope_scaling"));
    EXPECT_FALSE(config(key, 4).contains("rope_scaling"));
    EXPECT_FALSE(config(key, 1, "linear").contains("rope_scaling"));
    EXPECT_EQ(config(key, 2, "linear")["rope_scaling"]["factor"], 2);
    EXPECT_EQ(config(key, 1, "yarn")["rope_scaling"]["rope_type"], "yarn");
  }
}

// Every truncation of a good file is refused, and every single byte of its header may have any value.
TEST(GgufErrors, EveryTruncationAndEveryByte) {
  GgufBytes good;
  good.header(2, 2).string_key("general.architecture", "llama").key("n", GgufType::Array).number<uint32_t>(8);
  good.number<uint64_t>(2).text("ab").text("").tensor("a", {32, 2}, kQ4_1, 0).tensor("b", {3}, kF32, 64).data(76);
  good.read();
  for (size_t size = 0; size < good.bytes().size(); ++size)
    expect_error(ErrorKind::Model, "", [&] { GgufBytes().raw(good.bytes().substr(0, size)).read(); });
  for (size_t at = 0; at < good.bytes().size(); ++at)
    for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
      std::string bytes = good.bytes();
      bytes[at] = static_cast<char>(value);
      try {
        const GgufFile file = GgufFile::from_bytes(std::as_bytes(std::span(bytes)), "test.gguf");
        for (const auto& [name, tensor] : file.tensors()) EXPECT_LE(tensor.data.size(), bytes.size());
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Model);
      }
    }
}

// As many keys, tensors and strings as fit into 20 MB.
TEST(GgufErrors, ManySmallThingsTakeLinearTimeAndMemory) {
  GgufBytes many;
  const uint64_t keys = 200'000, tensors = 200'000, strings = 500'000;
  many.header(tensors, keys + 1);
  for (uint64_t i = 0; i < keys; ++i) many.key(std::to_string(i), GgufType::U8).number<uint8_t>(1);
  many.key("s", GgufType::Array).number<uint32_t>(8).number(strings);
  for (uint64_t i = 0; i < strings; ++i) many.text("");
  for (uint64_t i = 0; i < tensors; ++i) many.tensor(std::to_string(i), {}, kF32, 32 * i);
  many.data(32 * tensors);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(many.read().tensors().size(), tensors);
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), sanitized() ? 60 : 10);
  EXPECT_LT((after.ru_maxrss - before.ru_maxrss) * 1024, 12 * static_cast<int64_t>(many.bytes().size()));
}

TEST(GgufErrors, Files) {
  const TempFolder folder;
  expect_error(ErrorKind::Model, "cannot open for reading", [&] { GgufFile::open(folder / "none.gguf"); });
  expect_error(ErrorKind::Model, "expected a regular file", [&] { GgufFile::open(folder.path()); });
  put(folder / "empty.gguf", "");
  expect_error(ErrorKind::Model, "not a GGUF file", [&] { GgufFile::open(folder / "empty.gguf"); });
}

}  // namespace
