// safetensors: files round-trip, and legal variants are accepted.
#include "tenon/io/safetensors.h"

#include <cstring>

#include "tenon/io/files.h"
#include "tests/io/io_test_tools.h"

namespace {
using namespace io_test;
using namespace tenon;

SafetensorsFile parse(const std::string& bytes) {
  return SafetensorsFile::from_bytes(std::as_bytes(std::span(bytes)), "memory");
}

TEST(Safetensors, RoundTripOfEveryType) {
  const TempFolder folder;
  const std::vector<DType> types = {DType::F64, DType::F32, DType::F16, DType::BF16, DType::E4M3, DType::I64,
                                    DType::I32, DType::I16, DType::I8,  DType::U8,   DType::Bool};
  std::vector<std::string> bytes;
  std::vector<TensorData> tensors;
  for (size_t i = 0; i < types.size(); ++i)
    bytes.emplace_back(static_cast<size_t>(6 * size_of(types[i])), static_cast<char>(i + 1));
  for (size_t i = 0; i < types.size(); ++i)
    tensors.push_back({"t." + std::string(name_of(types[i])), types[i], {2, 3}, std::as_bytes(std::span(bytes[i]))});
  write_safetensors(folder / "a.safetensors", tensors, {{"format", "pt"}, {"note", "ünï"}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "a.safetensors");
  EXPECT_EQ(file.metadata().at("note"), "ünï");
  ASSERT_EQ(file.tensors().size(), types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const TensorView& view = file.at(tensors[i].name);
    EXPECT_EQ(view.dtype, types[i]);
    EXPECT_EQ(view.shape, (Shape{2, 3}));
    ASSERT_EQ(view.size, bytes[i].size());
    EXPECT_EQ(std::memcmp(view.data, bytes[i].data(), view.size), 0) << tensors[i].name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(size_of(types[i])), 0u);
  }
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Safetensors, UnalignedDataScalarsAndEmptyTensors) {
  // A header of odd length: the floats are at an odd address.
  const std::string header =
      R"({"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})"
      "   ";
  std::string bytes = safetensors_bytes(header, 0);
  const float value = 1.5f;
  bytes.append(reinterpret_cast<const char*>(&value), 4);
  const SafetensorsFile file = parse(bytes);
  EXPECT_EQ(load_element(DType::F32, file.at("s").data, 0), 1.5);
  EXPECT_EQ(file.at("s").shape.rank(), 0);
  EXPECT_EQ(file.at("e").shape.numel(), 0);
}

TEST(Safetensors, EmptyFileOfTensorsIsValid) { EXPECT_TRUE(parse(safetensors_bytes("{}", 0)).tensors().empty()); }

TEST(Safetensors, UnsupportedTypesAreListedAndRefusedByName) {
  const SafetensorsFile file = parse(safetensors_bytes(
      R"({"a":{"dtype":"F8_E5M2","shape":[2,3],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[1],"data_offsets":[6,7]}})",
      7));
  EXPECT_TRUE(file.contains("b"));
  EXPECT_FALSE(file.contains("a"));
  ASSERT_EQ(file.unsupported().size(), 1u);
  EXPECT_EQ(file.unsupported().at("a").shape, "[2,3]");
  expect_error(ErrorKind::Model, "unsupported element type F8_E5M2", [&] { file.at("a"); });
  expect_error(ErrorKind::Model, "there is no tensor 'c'", [&] { file.at("c"); });
}

TEST(Safetensors, ReleasedPagesReadTheSameAgain) {
  const TempFolder folder;
  write_f32(folder / "a.safetensors", {{"zero", {1}}, {"one", {100000}}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "a.safetensors");
  const TensorView& view = file.at("one");
  prefetch(view);
  for (int round = 0; round < 2; ++round) {
    for (int64_t i : {int64_t{0}, int64_t{50000}, int64_t{99999}})
      EXPECT_EQ(load_element(view.dtype, view.data, i), 1.0);
    release(view);
  }
}

TEST(Safetensors, IndexOfShards) {
  const TempFolder folder;
  write_f32(folder / "m-1.safetensors", {{"a", {2}}, {"b", {3}}});
  write_f32(folder / "m-2.safetensors", {{"c", {4}}});
  put(folder / "m.safetensors.index.json",
      R"({"metadata":{"total_size":36},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  const WeightSet set = open_weights(folder / "m.safetensors.index.json");
  EXPECT_EQ(set.bytes.size(), 2u);
  EXPECT_EQ(set.files, (std::vector<fs::path>{folder / "m.safetensors.index.json", folder / "m-1.safetensors",
                                              folder / "m-2.safetensors"}));
  EXPECT_EQ(set.tensors.size(), 3u);
  EXPECT_EQ(first_value(set.tensors.at("b")), 1.0f);
}

TEST(Safetensors, BadIndexes) {
  const TempFolder folder;
  write_f32(folder / "m-1.safetensors", {{"a", {2}}});
  write_f32(folder / "m-2.safetensors", {{"a", {2}}, {"b", {2}}});
  const fs::path index = folder / "m.safetensors.index.json";
  const auto expect = [&](const std::string& text, const std::string& part) {
    put(index, text);
    expect_error(ErrorKind::Model, part, [&] { open_weights(index); });
  };
  expect(R"([])", "expected an object with an object 'weight_map'");
  expect(R"({"weight_map":{"a":1}})", "expected a file name for 'a', found number");
  expect(R"({"weight_map":{"a":"../m-1.safetensors"}})", "is not the plain name of a file beside the index");
  expect(R"({"weight_map":{"x":"m-1.safetensors"}})", "tensor 'x' is not in 'm-1.safetensors'");
  expect(R"({"weight_map":{"b":"m-2.safetensors"}})", "weight_map: does not list 'a', which ");
  expect(R"({"weight_map":{"a":"m-3.safetensors"}})", "cannot open for reading");
  expect(R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})", "is also in another file of the index");
  expect(R"({"weight_map":{"a":"m-1.safetensors"},"weight_map":{}})", "duplicate key 'weight_map'");
}

TEST(Safetensors, WriterRefusesWhatItsReaderWould) {
  const TempFolder folder;
  const std::vector<float> values(6);
  const auto data = std::as_bytes(std::span(values));
  const std::vector<TensorData> wrong_size = {{"a", DType::F32, {5}, data}};
  const std::vector<TensorData> twice = {{"a", DType::F32, {6}, data}, {"a", DType::F32, {6}, data}};
  const std::vector<TensorData> reserved = {{"__metadata__", DType::F32, {6}, data}};
  expect_error(ErrorKind::Usage, "f32[5] has 20 bytes, got 24", [&] { write_safetensors(folder / "a", wrong_size); });
  expect_error(ErrorKind::Usage, "two tensors named 'a'", [&] { write_safetensors(folder / "a", twice); });
  expect_error(ErrorKind::Usage, "named '__metadata__'", [&] { write_safetensors(folder / "a", reserved); });
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
