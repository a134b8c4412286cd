// Extra memory during loading: less than one shard of a checkpoint with many. Measured by the system, in a separate
// process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tenon/expr/ops.h"
#include "tenon/io/safetensors.h"
#include "tenon/pipelines/component_weights.h"
#include "tenon/runtime/executable.h"
#include "tests/support/sanitized.h"

namespace tenon::peak_memory {
namespace {
namespace fs = std::filesystem;

constexpr int kShards = 6, kLayersOfShard = 4;
constexpr int64_t kWidth = 1024, kLayer = kWidth * kWidth * 4, kShard = kLayersOfShard * kLayer;

std::string name_of_layer(int layer) { return "layer" + std::to_string(layer); }

fs::path write_checkpoint() {
  std::string name = (fs::temp_directory_path() / "tenon-peak-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
  nlohmann::json map;
  std::vector<float> values(kWidth * kWidth);
  for (int s = 0; s < kShards; ++s) {
    std::vector<TensorData> tensors;
    const std::string file = "model-0000" + std::to_string(s + 1) + "-of-00006.safetensors";
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 1e-3f * static_cast<float>((i * 31 + static_cast<size_t>(s)) % 97);
    for (int l = s * kLayersOfShard; l < (s + 1) * kLayersOfShard; ++l) {
      tensors.push_back({name_of_layer(l), DType::F32, {kWidth, kWidth}, std::as_bytes(std::span(values))});
      map[name_of_layer(l)] = file;
    }
    write_safetensors(fs::path(name) / file, tensors);
  }
  std::ofstream(fs::path(name) / "model.safetensors.index.json") << nlohmann::json{{"weight_map", map}}.dump();
  return name;
}

// A loader that keeps this many tensors before releasing them.
class Holding : public WeightSource {
 public:
  Holding(std::unique_ptr<WeightSource> source, size_t tensors) : source_(std::move(source)), most_(tensors) {}
  HostView find(const std::string& name) const override { return source_->find(name); }
  void done(const std::string& name) const override {
    held_.push_back(name);
    if (held_.size() < most_) return;
    for (const std::string& n : held_) source_->done(n);
    held_.clear();
  }

 private:
  std::unique_ptr<WeightSource> source_;
  size_t most_;
  mutable std::vector<std::string> held_;
};

// Bytes from a line of this process's status: "VmHWM", "RssAnon".
int64_t status(const std::string& line) {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (file >> word)
    if (word == line + ":") file >> kib;
  return kib * 1024;
}

// Peak of the bytes held during loading beyond what stays.
int64_t load(const fs::path& folder, size_t held) {
  const WeightSet set = open_weights(folder / "model.safetensors.index.json");
  Component component;
  component.name = "chain";
  component.tensors.insert(set.tensors.begin(), set.tensors.end());
  Graph g;
  Expr x = input(g, "x", DType::F32, {4, kWidth});
  for (int l = 0; l < kShards * kLayersOfShard; ++l)
    x = linear(x, param(g, name_of_layer(l), DType::F32, {kWidth, kWidth}));
  const Plan plan = make_plan(std::array{Result{"y", x}});
  const auto store = std::make_shared<WeightStore>(make_backend("cpu", {1}),
                                                   std::make_shared<Holding>(component_weights(component), held));
  const int64_t files = status("RssFile") + status("RssShmem");
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const Executable e(plan, store);
  const int64_t most = status("VmHWM");
  return most - status("RssAnon") - files;
}

// The same in a fresh process; -1 if it failed.
int64_t load_in_child(const fs::path& folder, size_t held) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    int64_t bytes = -1;
    try {
      bytes = load(folder, held);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    _exit(::write(ends[1], &bytes, sizeof bytes) == sizeof bytes ? 0 : 1);
  }
  ::close(ends[1]);
  int64_t bytes = -1;
  if (::read(ends[0], &bytes, sizeof bytes) != sizeof bytes) bytes = -1;
  ::close(ends[0]);
  waitpid(child, nullptr, 0);
  return bytes;
}

TEST(PeakMemory, LoadingHoldsLessThanAShardBesideWhatStays) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer's own memory is more";
  const fs::path folder = write_checkpoint();
  const std::shared_ptr<void> gone(nullptr, [&](void*) { fs::remove_all(folder); });
  const int64_t one_by_one = load_in_child(folder, 1);
  RecordProperty("bytes", std::to_string(one_by_one));
  EXPECT_GE(one_by_one, kLayer / 2) << "the tensor that is being packed at least";
  EXPECT_LE(one_by_one, kShard);
  // Checks the measurement itself: it shows a loader that holds two shards.
  EXPECT_GT(load_in_child(folder, 2 * kLayersOfShard), kShard);
  EXPECT_GT(load_in_child(folder, 1000), (kShards - 1) * kShard);
}

}  // namespace
}  // namespace tenon::peak_memory
