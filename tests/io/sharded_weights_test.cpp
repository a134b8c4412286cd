// Weights in several files: the index, and errors in it.
#include "tenon/io/sharded_weights.h"

#include "tests/io/io_test_tools.h"

namespace {
using namespace io_test;
using namespace tenon;

std::string one_tensor_file(const std::string& name) {
  return safetensors_bytes(R"({")" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
}
fs::path index_in(const TempFolder& folder, const std::string& weight_map) {
  put(folder / "a.safetensors", one_tensor_file("x"));
  put(folder / "b.safetensors", one_tensor_file("y"));
  put(folder / "model.safetensors.index.json", R"({"metadata":{"total_size":16},"weight_map":)" + weight_map + "}");
  return folder / "model.safetensors.index.json";
}

TEST(ShardedWeights, OpensOneFileAfterTheOther) {
  const TempFolder folder;
  const auto weights = ShardedWeights::open(index_in(folder, R"({"y":"b.safetensors","x":"a.safetensors"})"));
  EXPECT_EQ(weights.shards(), (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
  EXPECT_EQ(weights.shard_of().at("y"), "b.safetensors");
  EXPECT_EQ(weights.total_size(), 16);
  EXPECT_EQ(weights.open_shard("a.safetensors").at("x").shape, Shape{2});
  EXPECT_TRUE(weights.open_shard("b.safetensors").contains("y"));
}

// No file is opened before it is needed.
TEST(ShardedWeights, AFileThatIsWrongIsFoundWhenItIsOpened) {
  const TempFolder folder;
  const fs::path index = index_in(folder, R"({"y":"b.safetensors","x":"a.safetensors"})");
  put(folder / "b.safetensors", "short");
  const auto weights = ShardedWeights::open(index);
  EXPECT_TRUE(weights.open_shard("a.safetensors").contains("x"));
  expect_error(ErrorKind::Model, "b.safetensors", [&] { weights.open_shard("b.safetensors"); });
}

TEST(ShardedWeights, AnIndexThatLies) {
  const TempFolder folder;
  const auto refuse = [&](const std::string& weight_map, const std::string& part) {
    const fs::path index = index_in(folder, weight_map);
    expect_error(ErrorKind::Model, part, [&] {
      const auto weights = ShardedWeights::open(index);
      for (const std::string& shard : weights.shards()) weights.open_shard(shard);
    });
  };
  for (const std::string path : {"../a.safetensors", "/etc/passwd", "sub/a.safetensors", "", ".", ".."})
    refuse(R"({"x":")" + path + R"("})", "expected the plain name of a file beside the index for 'x'");
  refuse(R"({"x":"a.safetensors\u0000.."})", "expected the plain name");
  refuse(R"({"x":1})", "expected the plain name of a file beside the index for 'x', found 1");
  refuse(R"({"x":"c.safetensors","y":"d.safetensors"})",
         "names files that do not exist beside it: c.safetensors, d.safetensors");
  refuse(R"({"x":"a.safetensors","y":"a.safetensors"})", "weight_map: tensor 'y' is not in 'a.safetensors'");
  refuse(R"({"z":"a.safetensors"})", "'a.safetensors' holds tensor 'x', which weight_map does not list");
  refuse(R"({"x":"b.safetensors","y":"b.safetensors"})", "weight_map: tensor 'x' is not in 'b.safetensors'");
  refuse(R"({"x":"b.safetensors","z":"a.safetensors"})",
         "'a.safetensors' holds tensor 'x', which weight_map puts into 'b.safetensors'");
  refuse("{}", "weight_map: lists no tensors");
  refuse("[]", "expected an object with an object 'weight_map'");
  refuse(R"({"x":"a.safetensors","x":"b.safetensors"})", "duplicate key 'x'");
}

}  // namespace
