// GGUF files against the gguf package (fixtures made by tools/fixtures/gguf_files.py).
#include "tenon/io/gguf.h"

#include <cmath>

#include "tenon/core/options.h"
#include "tenon/io/files.h"
#include "tenon/io/gguf_checkpoint.h"
#include "tenon/io/json.h"
#include "tenon/pipelines/families/z_image/tensor_names.h"
#include "tests/io/io_test_tools.h"
#include "tests/support/base64.h"

namespace {
using namespace io_test;
using namespace tenon;
using nlohmann::json;

std::vector<float> floats(const json& base64) {
  const std::string bytes = from_base64(base64.get<std::string>());
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// Number of values whose bits differ; NaN equals NaN.
size_t different_bits(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return std::max(got.size(), want.size());
  size_t out = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i]);
    if (!same && !(std::isnan(got[i]) && std::isnan(want[i]))) ++out;
  }
  return out;
}

TEST(GgufBlocks, EveryTypeHasTheReferencesBits) {
  const json cases = read_json(fixture("gguf/blocks.json"));
  EXPECT_EQ(cases.size(), 11u);
  for (const json& c : cases) {
    const auto type = static_cast<BlockType>(c["number"].get<uint32_t>());
    EXPECT_EQ(name_of(type), c["type"].get<std::string>());
    const std::string blocks = from_base64(c["blocks"].get<std::string>());
    const std::vector<float> want = floats(c["values"]);
    ASSERT_EQ(blocks.size() / static_cast<size_t>(block_bytes(type)) * static_cast<size_t>(block_elements(type)),
              want.size());
    std::vector<float> got(want.size());
    dequantise(type, std::as_bytes(std::span(blocks)), got);
    EXPECT_EQ(different_bits(got, want), 0u) << c["type"];
    EXPECT_GE(want.size(), 512u);
    std::vector<uint16_t> half(want.size());
    dequantise_bf16(type, std::as_bytes(std::span(blocks)), half);
    for (size_t i = 0; i < half.size(); ++i) {
      if (std::isnan(want[i]))
        EXPECT_TRUE(std::isnan(bf16_value(half[i])));
      else
        EXPECT_EQ(half[i], bf16_bits(want[i])) << c["type"] << " " << i;
    }
  }
}

TEST(GgufBlocks, SizesMustFit) {
  std::vector<std::byte> bytes(40);
  std::vector<float> out(64);
  dequantise(BlockType::Q4_1, bytes, out);
  for (const size_t wrong : {39u, 20u})
    expect_error(ErrorKind::Internal, "do not fit",
                 [&] { dequantise(BlockType::Q4_1, std::span(bytes).first(wrong), out); });
  expect_error(ErrorKind::Internal, "do not fit",
               [&] { dequantise(BlockType::Q4_1, bytes, std::span(out).first(63)); });
}

TEST(GgufFile, MetadataOfEveryType) {
  const GgufFile file = GgufFile::open(fixture("gguf/llama.gguf"));
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.architecture(), "llama");
  EXPECT_EQ(file.integer("test.u8"), 200);
  EXPECT_EQ(file.integer("test.i8"), -100);
  EXPECT_EQ(file.integer("test.u16"), 60000);
  EXPECT_EQ(file.integer("test.i16"), -30000);
  EXPECT_EQ(file.integer("test.u32"), 4000000000);
  EXPECT_EQ(file.integer("test.i32"), -2000000000);
  EXPECT_EQ(file.integer("test.i64"), -(int64_t{1} << 62));
  expect_error(ErrorKind::Model, "test.u64: 9223372036854775808 is too large", [&] { file.integer("test.u64"); });
  EXPECT_EQ(file.number("test.u64"), 9223372036854775808.0);
  EXPECT_EQ(file.number("test.f32"), static_cast<double>(0.1f));
  EXPECT_EQ(file.number("test.f64"), 0.1);
  EXPECT_EQ(file.boolean("test.true"), true);
  EXPECT_EQ(file.string("test.string"), "näme");
  EXPECT_EQ(file.strings("test.strings"), (std::vector<std::string_view>{"a", "", "ü"}));
  EXPECT_EQ(file.integers("test.ints"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(file.numbers("test.floats"), (std::vector<double>{0.5, -1.5}));
  EXPECT_EQ(file.integers("test.bools"), (std::vector<int64_t>{1, 0}));
  EXPECT_FALSE(file.string("nothing"));
  EXPECT_TRUE(file.strings("nothing").empty());
  expect_error(ErrorKind::Model, "test.string: expected an integer, found string",
               [&] { file.integer("test.string"); });
  expect_error(ErrorKind::Model, "test.ints: expected one value, found an array of i32",
               [&] { file.integer("test.ints"); });
  expect_error(ErrorKind::Model, "test.u8: expected an array, found u8", [&] { file.integers("test.u8"); });
  expect_error(ErrorKind::Model, "test.ints: expected an array of strings, found one of i32",
               [&] { file.strings("test.ints"); });
  expect_error(ErrorKind::Model, "test.u8: expected true or false, found u8", [&] { file.boolean("test.u8"); });
  expect_error(ErrorKind::Model, "test.f32: expected an integer, found f32", [&] { file.integer("test.f32"); });
}

std::vector<float> all_rows(const GgufSlice& slice) {
  std::vector<float> out(static_cast<size_t>(slice.shape.numel()));
  read_rows(slice, 0, out);
  return out;
}

class GgufCheckpoints : public testing::TestWithParam<const char*> {};
TEST_P(GgufCheckpoints, TensorsAreThoseOfTheCheckpoint) {
  const std::string name = GetParam();
  const GgufFile file = GgufFile::open(fixture("gguf/" + name + ".gguf"));
  const GgufCheckpoint checkpoint = name == "lumina2" ? lumina_checkpoint(file) : gguf_checkpoint(file);
  const json expected = read_json(fixture("gguf/tensors.json"))[name];
  EXPECT_EQ(checkpoint.tensors.size(), expected.size());
  EXPECT_EQ(checkpoint.unexpected,
            name == "llama" ? std::vector<std::string>{"rope_freqs.weight"} : std::vector<std::string>{});
  for (const auto& [tensor, want] : expected.items()) {
    ASSERT_TRUE(checkpoint.tensors.count(tensor)) << tensor;
    const GgufSlice& slice = checkpoint.tensors.at(tensor);
    EXPECT_EQ(name_of(slice.tensor->type), want["type"].get<std::string>()) << tensor;
    EXPECT_EQ(std::vector<int64_t>(slice.shape.begin(), slice.shape.end()), want["shape"].get<std::vector<int64_t>>());
    const std::vector<float> values = floats(want["values"]);
    EXPECT_EQ(different_bits(all_rows(slice), values), 0u) << tensor;
    if (slice.shape.rank() < 2) continue;
    // Some rows from the middle, rounded to bf16.
    const auto cols = static_cast<size_t>(slice.shape.cols());
    std::vector<uint16_t> rows(2 * cols);
    read_rows_bf16(slice, 1, rows);
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], bf16_bits(values[cols + i])) << tensor;
  }
}
INSTANTIATE_TEST_SUITE_P(All, GgufCheckpoints, testing::Values("llama", "lumina2"));

TEST(GgufCheckpoint, RowsThatAreNotThere) {
  const GgufFile file = GgufFile::open(fixture("gguf/llama.gguf"));
  const GgufCheckpoint checkpoint = gguf_checkpoint(file);
  const GgufSlice& slice = checkpoint.tensors.at("model.embed_tokens.weight");
  std::vector<float> row(32);
  read_rows(slice, 39, row);
  expect_error(ErrorKind::Internal, "rows 40 to 41", [&] { read_rows(slice, 40, row); });
  expect_error(ErrorKind::Internal, "rows -1", [&] { read_rows(slice, -1, row); });
  row.resize(31);
  expect_error(ErrorKind::Internal, "rows 0", [&] { read_rows(slice, 0, row); });
}

TEST(GgufCheckpoint, Config) {
  const json config = gguf_config(GgufFile::open(fixture("gguf/llama.gguf")));
  EXPECT_EQ(config["model_type"], "llama");
  EXPECT_EQ(config["hidden_size"], 32);
  EXPECT_EQ(config["num_hidden_layers"], 1);
  EXPECT_EQ(config["intermediate_size"], 64);
  EXPECT_EQ(config["num_attention_heads"], 4);
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["max_position_embeddings"], 128);
  EXPECT_EQ(config["vocab_size"], 40);
  EXPECT_EQ(config["rope_theta"], 5e5);
  EXPECT_EQ(config["rms_norm_eps"], static_cast<double>(1e-5f));
  EXPECT_EQ(config["tie_word_embeddings"], true);
}

TEST(GgufCheckpoint, RealSmolLm2) {
  const fs::path path = cache_folder() / "fetched" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(path)) GTEST_SKIP() << "no " << path << ": run tools/get_smollm2.sh";
  const GgufFile file = GgufFile::open(path);
  const GgufCheckpoint checkpoint = gguf_checkpoint(file);
  EXPECT_EQ(checkpoint.tensors.size(), 272u);
  EXPECT_TRUE(checkpoint.unexpected.empty());
  EXPECT_EQ(checkpoint.tensors.at("model.embed_tokens.weight").shape, (Shape{49152, 576}));
  const json config = gguf_config(file);
  EXPECT_EQ(config["num_attention_heads"], 9);
  EXPECT_EQ(config["rope_theta"], 100000);
  EXPECT_EQ(config["vocab_size"], 49152);
  const json expected = read_json(fixture("gguf/smollm2.json"));
  for (const auto& [tensor, want] : expected.items()) {
    const GgufSlice& slice = checkpoint.tensors.at(tensor);
    std::vector<float> rows(want["rows"].get<size_t>() * static_cast<size_t>(slice.shape.cols()));
    read_rows(slice, 0, rows);
    uint64_t h = 0xcbf29ce484222325u;
    for (const std::byte b : std::as_bytes(std::span(rows))) h = (h ^ static_cast<uint8_t>(b)) * 0x100000001b3u;
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(h));
    EXPECT_EQ(hex, want["hash"].get<std::string>()) << tensor;
  }
}

}  // namespace
