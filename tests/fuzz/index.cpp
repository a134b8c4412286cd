// Any bytes as a *.safetensors.index.json next to two shards: either an Error(Model), or tensors of those shards.
#include "tenon/io/safetensors.h"
#include "tests/fuzz/fuzz_tools.h"

namespace {
using namespace tenon;

const fuzz::Folder& shards() {
  static const fuzz::Folder folder;
  static const bool written = [] {
    const std::vector<float> values(4);
    const auto bytes = std::as_bytes(std::span(values));
    write_safetensors(folder / "a.safetensors", std::array{TensorData{"x", DType::F32, {4}, bytes}});
    write_safetensors(folder / "b.safetensors",
                      std::array{TensorData{"x", DType::F32, {4}, bytes}, TensorData{"y", DType::F32, {2, 2}, bytes}});
    return true;
  }();
  static_cast<void>(written);
  return folder;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shards().write("model.safetensors.index.json", {reinterpret_cast<const char*>(data), size});
  fuzz::refuses_only({ErrorKind::Model}, [] {
    const WeightSet set = open_weights(shards() / "model.safetensors.index.json");
    for (const auto& [name, view] : set.tensors)
      if ((name != "x" && name != "y") || view.size != 16) std::abort();
  });
  return 0;
}
