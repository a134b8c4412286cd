// Every kind of invalid safetensors file gives one Error(Model) that names the file, and nothing is read.
#include "tenon/io/safetensors.h"
#include "tests/io/io_test_tools.h"

namespace {
using namespace io_test;
using namespace tenon;

struct BadFile {
  const char* name;
  std::string bytes;
  std::string message;
};

std::string with(const std::string& entry, size_t data = 8) { return safetensors_bytes("{\"t\":" + entry + "}", data); }

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

const std::vector<BadFile>& bad_headers() {
  static const std::vector<BadFile> files = {
      {"Empty", "", "expected at least 8 bytes, found 0"},
      {"ShorterThanLength", "1234567", "expected at least 8 bytes, found 7"},
      {"HeaderBeyondFile", safetensors_bytes("{}", 0, 3), "header length 3 exceeds the 2 bytes that follow it"},
      {"HugeHeader", safetensors_bytes("{}", 0, 100000001), "header length 100000001 exceeds the limit"},
      {"LengthNearOverflow", safetensors_bytes("{}", 0, ~uint64_t{0}), "header length 18446744073709551615 exceeds"},
      {"EmptyHeader", safetensors_bytes("", 0), "invalid JSON"},
      {"InvalidUtf8", safetensors_bytes("{\"\xff\":1}", 0), "invalid UTF-8 in JSON at byte 2"},
      {"PaddedWithZeros", safetensors_bytes(std::string("{}\0\0", 4), 0), "a zero byte at byte 2"},
      {"Surrogate", safetensors_bytes("{\"\xed\xa0\x80\":1}", 0), "invalid UTF-8 in JSON at byte 2"},
      {"InvalidJson", safetensors_bytes("{\"a\":}", 0), "invalid JSON"},
      {"NaN", with(tensor("F32", "[NaN]", "[0,8]")), "invalid JSON"},
      {"Infinity", with(tensor("F32", "[Infinity]", "[0,8]")), "invalid JSON"},
      {"HugeNumber", with(tensor("F32", "[1e999]", "[0,8]")), "invalid JSON"},
      {"TextBehindHeader", safetensors_bytes("{}x", 0), "invalid JSON"},
      {"DuplicateTensor",
       safetensors_bytes("{\"t\":" + tensor("U8", "[0]", "[0,0]") + ",\"t\":" + tensor("U8", "[0]", "[0,0]") + "}", 0),
       "duplicate key 't'"},
      {"DuplicateMetadata", safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})", 0),
       "duplicate key '__metadata__'"},
      {"DuplicateMetadataKey", safetensors_bytes(R"({"__metadata__":{"a":"","a":""}})", 0), "duplicate key 'a'"},
      {"DuplicateField", with(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
       "duplicate key 'dtype'"},
      {"DeepNesting", safetensors_bytes(R"({"t":{"x":)" + std::string(100000, '['), 0), "nested deeper than"},
      {"NotAnObject", safetensors_bytes("[]", 0), "expected the header to be an object, found array"},
      {"EntryNotAnObject", with("3"), "tensor 't': expected an object, found number"},
  };
  return files;
}

const std::vector<BadFile>& bad_tensors() {
  static const std::vector<BadFile> files = {
      {"NoDtype", with(R"({"shape":[2],"data_offsets":[0,8]})"), "'dtype' is missing"},
      {"NoShape", with(R"({"dtype":"F32","data_offsets":[0,8]})"), "'shape' is missing"},
      {"NoOffsets", with(R"({"dtype":"F32","shape":[2]})"), "'data_offsets' is missing"},
      {"DtypeInSmallLetters", with(R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})"),
       "'f32' is not an element type"},
      {"DtypeEmpty", with(R"({"dtype":"","shape":[2],"data_offsets":[0,8]})"), "'' is not an element type"},
      {"DtypeEscape", with(R"({"dtype":"\u001b[31m","shape":[2],"data_offsets":[0,8]})"),
       "'\\x1b[31m' is not an element type"},
      {"DtypeType", with(R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})"), "expected dtype to be a string"},
      {"ShapeType", with(tensor("F32", "2", "[0,8]")), "expected shape to be an array, found number"},
      {"ExtentType", with(tensor("F32", "[2.0]", "[0,8]")), "expected whole numbers in shape, found 2.0"},
      {"ExtentBeyondSigned", with(tensor("F32", "[0,9223372036854775808]", "[0,0]"), 0),
       "tensor 't': 9223372036854775808 in shape is more than can be addressed"},
      {"HugeBesideZero", with(tensor("U8", "[4294967296,2147483648,0]", "[0,0]"), 0), "has more bytes than can be"},
      {"NegativeExtent", with(tensor("F32", "[-2]", "[0,8]")), "negative number -2 in shape"},
      {"OffsetsType", with(tensor("F32", "[2]", "8")), "expected data_offsets to be an array of two numbers, found 8"},
      {"OffsetsCount", with(tensor("F32", "[2]", "[0,8,9]")), "expected data_offsets to be an array of two numbers"},
      {"OffsetText", with(tensor("F32", "[2]", "[0,\"8\"]")), "expected whole numbers in data_offsets, found \"8\""},
      {"NegativeOffset", with(tensor("F32", "[2]", "[-8,0]")), "negative number -8 in data_offsets"},
      {"Reversed", with(tensor("F32", "[2]", "[8,0]")), "data_offsets [8,0] are reversed"},
      {"Truncated", with(tensor("F32", "[2]", "[0,8]"), 7), "exceed the file's 7 bytes of data (truncated?)"},
      {"SizeMismatch", with(tensor("F32", "[3]", "[0,8]")),
       "F32 of shape [3] needs 12 bytes, data_offsets [0,8] hold 8"},
      {"Overflow", with(tensor("F32", "[4294967296,4294967296,2]", "[0,8]")), "more bytes than can be addressed"},
      {"OverflowOfBytes", with(tensor("F64", "[2305843009213693952]", "[0,8]")), "more bytes than can be addressed"},
      {"Rank", with(tensor("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]")), "tensor 't': more extents than the limit of 8"},
      {"BytesBehind", with(tensor("F32", "[1]", "[0,4]")),
       "the tensors end at byte 4 of the data, but the file holds 8"},
      {"DataWithoutTensors", safetensors_bytes("{}", 5), "the tensors end at byte 0 of the data, but the file holds 5"},
      {"HoleAtStart", with(tensor("F32", "[1]", "[4,8]")), "bytes 0 to 4 of the data belong to no tensor"},
      {"Overlap",
       safetensors_bytes("{\"a\":" + tensor("F32", "[2]", "[0,8]") + ",\"b\":" + tensor("F32", "[1]", "[4,8]") + "}",
                         8),
       "tensor 'b': data_offsets [4,8] overlap another tensor, which ends at 8"},
      {"SameRange",
       safetensors_bytes("{\"a\":" + tensor("U8", "[8]", "[0,8]") + ",\"b\":" + tensor("U8", "[8]", "[0,8]") + "}", 8),
       "tensor 'b': data_offsets [0,8] overlap"},
      {"MetadataType", safetensors_bytes(R"({"__metadata__":3})", 0), "__metadata__: expected an object of strings"},
      {"MetadataValue", safetensors_bytes(R"({"__metadata__":{"k":3}})", 0),
       "expected 'k' to be a string, found number"},
  };
  return files;
}

class BadSafetensors : public testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensors, IsRefused) {
  const TempFolder folder;
  const fs::path path = folder / "bad.safetensors";
  put(path, GetParam().bytes);
  const Error e = error_of([&] { SafetensorsFile::open(path); });
  EXPECT_EQ(e.kind(), ErrorKind::Model);
  EXPECT_EQ(e.where(), path.string());
  EXPECT_NE(std::string(e.what()).find(GetParam().message), std::string::npos) << e.what();
  // The same from memory.
  expect_error(ErrorKind::Model, GetParam().message,
               [] { SafetensorsFile::from_bytes(std::as_bytes(std::span(GetParam().bytes)), "memory"); });
}
const auto name_of_case = [](const auto& bad) { return std::string(bad.param.name); };
INSTANTIATE_TEST_SUITE_P(Header, BadSafetensors, testing::ValuesIn(bad_headers()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Tensor, BadSafetensors, testing::ValuesIn(bad_tensors()), name_of_case);

TEST(SafetensorsErrors, MissingFileFolderAndEveryTruncation) {
  const TempFolder folder;
  expect_error(ErrorKind::Model, "cannot open for reading: No such file",
               [&] { SafetensorsFile::open(folder / "no"); });
  expect_error(ErrorKind::Model, "expected a regular file", [&] { SafetensorsFile::open(folder.path()); });
  write_f32(folder / "a.safetensors", {{"x", {3}}, {"y", {2, 2}}});
  std::ifstream in(folder / "a.safetensors", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (size_t n = 0; n < whole.size(); ++n) {
    put(folder / "cut", whole.substr(0, n));
    EXPECT_EQ(error_of([&] { SafetensorsFile::open(folder / "cut"); }).kind(), ErrorKind::Model) << n << " bytes";
  }
}

}  // namespace
