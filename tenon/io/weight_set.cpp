// Sharded weights and the safetensors writer.
#include <algorithm>
#include <array>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/io/safetensors.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
using nlohmann::json;

// A tensor that the index does not list is probably left from another model.
void check_listed(const SafetensorsFile& file, const json& weight_map, const std::string& where) {
  const auto check = [&](const std::string& tensor) {
    TENON_CHECK(Model, weight_map.contains(tensor), where)
        << "weight_map: does not list '" << shown(tensor) << "', which " << shown(file.name()) << " holds";
  };
  for (const auto& [tensor, unused] : file.tensors()) check(tensor);
  for (const auto& [tensor, unused] : file.unsupported()) check(tensor);
}

WeightSet open_index(const fs::path& path) {
  const std::string where = path.string();
  const json index = read_json(path);
  TENON_CHECK(Model, index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), where)
      << "expected an object with an object 'weight_map'";
  std::map<std::string, SafetensorsFile> files;
  for (const auto& [tensor, value] : index["weight_map"].items()) {
    TENON_CHECK(Model, value.is_string(), where)
        << "weight_map: expected a file name for '" << shown(tensor) << "', found " << value.type_name();
    const auto& file = value.get_ref<const std::string&>();
    const bool plain = !file.empty() && file.find_first_of(std::string_view("/\0", 2)) == file.npos;
    TENON_CHECK(Model, plain && file != "." && file != "..", where)
        << "weight_map: '" << shown(file) << "' is not the plain name of a file beside the index";
    auto shard = files.find(file);
    if (shard == files.end()) shard = files.emplace(file, SafetensorsFile::open(path.parent_path() / file)).first;
    TENON_CHECK(Model, shard->second.contains(tensor) || shard->second.unsupported().count(tensor), where)
        << "weight_map: tensor '" << shown(tensor) << "' is not in '" << shown(file) << "'";
  }
  WeightSet set;
  set.files.push_back(path);
  for (auto& [name, file] : files) {
    check_listed(file, index["weight_map"], where);
    set.take(std::move(file));
    set.files.push_back(path.parent_path() / name);
  }
  return set;
}

// Widest elements first, then by name: each tensor is aligned to its element size without padding.
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

void WeightSet::take(SafetensorsFile file) {
  tensors.merge(file.tensors_);  // whatever was not moved is a duplicate
  unsupported.merge(file.unsupported_);
  if (!file.tensors_.empty() || !file.unsupported_.empty())
    throw Error(ErrorKind::Model, file.name_,
                "tensor '" +
                    shown(file.tensors_.empty() ? file.unsupported_.begin()->first : file.tensors_.begin()->first) +
                    "' is also in another file of the index");
  metadata.merge(file.metadata_);
  bytes.push_back(std::move(file.mapping_));
}

WeightSet open_weights(const fs::path& path) {
  if (path.extension() == ".json") return open_index(path);
  WeightSet set;
  set.take(SafetensorsFile::open(path));
  set.files.push_back(path);
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
  for (const TensorData* t : order) {
    check_stop(path.native());
    file.write(t->data);
  }
  file.commit();
}

}  // namespace tenon
