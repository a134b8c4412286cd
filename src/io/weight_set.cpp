// Sharded weights, and the writer.
#include <algorithm>
#include <array>

#include "tenon/core/error.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/io/safetensors.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
using nlohmann::json;

void add_file(WeightSet& set, std::shared_ptr<const SafetensorsFile> file) {
  for (const auto& [name, view] : file->tensors())
    TENON_CHECK(Model, set.tensors.emplace(name, view).second, file->name())
        << "tensor '" << name << "' is in another file of the index too";
  set.unsupported.insert(file->unsupported().begin(), file->unsupported().end());
  set.metadata.insert(file->metadata().begin(), file->metadata().end());
  set.files.push_back(std::move(file));
}

WeightSet open_index(const fs::path& path) {
  const std::string where = path.string();
  const json index = read_json(path);
  TENON_CHECK(Model, index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), where)
      << "expected an object with an object 'weight_map'";
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files;
  for (const auto& [tensor, value] : index["weight_map"].items()) {
    TENON_CHECK(Model, value.is_string(), where)
        << "weight_map: expected a file name for '" << tensor << "', found " << value.type_name();
    const auto file = value.get<std::string>();
    TENON_CHECK(Model, !file.empty() && fs::path(file).filename() == file && file != "." && file != "..", where)
        << "weight_map: '" << file << "' is not the plain name of a file beside the index";
    auto& shard = files[file];
    if (!shard) shard = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path.parent_path() / file));
    TENON_CHECK(Model, shard->contains(tensor) || shard->unsupported().count(tensor), where)
        << "weight_map: tensor '" << tensor << "' is not in '" << file << "'";
  }
  WeightSet set;
  for (auto& [name, file] : files) add_file(set, file);
  return set;
}

// Wider elements first, then by name: each tensor starts at a multiple of its element size without any padding.
std::vector<const TensorData*> write_order(std::span<const TensorData> tensors) {
  std::vector<const TensorData*> order;
  for (const TensorData& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const TensorData* a, const TensorData* b) {
    const int64_t wa = size_of(a->dtype), wb = size_of(b->dtype);
    return wa != wb ? wa > wb : a->name < b->name;
  });
  return order;
}

}  // namespace

WeightSet open_weights(const fs::path& path) {
  if (path.extension() == ".json") return open_index(path);
  WeightSet set;
  add_file(set, std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path)));
  return set;
}

void write_safetensors(const fs::path& path, std::span<const TensorData> tensors,
                       const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  const std::vector<const TensorData*> order = write_order(tensors);
  uint64_t offset = 0;
  for (const TensorData* t : order) {
    const auto bytes = static_cast<uint64_t>(t->shape.numel() * size_of(t->dtype));
    TENON_CHECK(Usage, t->data.size() == bytes, path.string())
        << "tensor '" << t->name << "': " << name_of(t->dtype) << t->shape.str() << " has " << bytes << " bytes, got "
        << t->data.size();
    TENON_CHECK(Usage, t->name != "__metadata__" && !header.contains(t->name), path.string())
        << "two tensors named '" << t->name << "'";
    header[t->name] = {{"dtype", safetensors_name(t->dtype)},
                       {"shape", std::vector<int64_t>(t->shape.begin(), t->shape.end())},
                       {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::array<std::byte, 8> length;
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i));
  AtomicFile file(path, Overwrite::Yes);
  file.write(length);
  file.write(std::as_bytes(std::span(text)));
  for (const TensorData* t : order) file.write(t->data);
  file.commit();
}

}  // namespace tenon
