#include "tenon/io/sharded_weights.h"

#include "tenon/core/error.h"
#include "tenon/io/json.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
using nlohmann::json;

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\0", 2)) == name.npos;
}

}  // namespace

ShardedWeights ShardedWeights::open(const fs::path& path) {
  const std::string where = path.string();
  const json index = read_json(path);
  TENON_CHECK(Model, index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), where)
      << "expected an object with an object 'weight_map'";
  ShardedWeights out;
  out.index_ = path;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    TENON_CHECK(Model, shard.is_string() && is_plain_name(shard.get_ref<const std::string&>()), where)
        << "weight_map: expected the plain name of a file beside the index for '" << tensor << "', found "
        << shown_json(shard);
    out.shard_of_[tensor] = shard.get<std::string>();
    ++out.count_[shard.get<std::string>()];
  }
  TENON_CHECK(Model, !out.count_.empty(), where) << "weight_map: lists no tensors";
  for (const auto& [name, tensors] : out.count_) out.shards_.push_back(name);
  std::string missing;
  std::error_code ignored;
  for (const std::string& name : out.shards_)
    if (!fs::is_regular_file(path.parent_path() / name, ignored)) missing += (missing.empty() ? "" : ", ") + name;
  TENON_CHECK(Model, missing.empty(), where) << "names files that do not exist beside it: " << missing;
  const auto metadata = index.find("metadata");
  if (metadata != index.end() && metadata->is_object()) {
    const auto size = metadata->find("total_size");
    if (size != metadata->end() && size->is_number_unsigned() && size->get<uint64_t>() < (uint64_t{1} << 62))
      out.total_size_ = size->get<int64_t>();
  }
  return out;
}

SafetensorsFile ShardedWeights::open_shard(const std::string& shard) const {
  SafetensorsFile file = SafetensorsFile::open(index_.parent_path() / shard);
  const std::string where = index_.string();
  const auto check_listed = [&](const std::string& tensor) {
    const auto listed = shard_of_.find(tensor);
    TENON_CHECK(Model, listed != shard_of_.end(), where)
        << "'" << shard << "' holds tensor '" << tensor << "', which weight_map does not list";
    TENON_CHECK(Model, listed->second == shard, where)
        << "'" << shard << "' holds tensor '" << tensor << "', which weight_map puts into '" << listed->second << "'";
  };
  for (const auto& [tensor, view] : file.tensors()) check_listed(tensor);
  for (const auto& [tensor, view] : file.unsupported()) check_listed(tensor);
  const auto listed_here = count_.find(shard);
  const size_t found = file.tensors().size() + file.unsupported().size();
  if (listed_here == count_.end() || listed_here->second == found) return file;
  for (const auto& [tensor, name] : shard_of_)
    TENON_CHECK(Model, name != shard || file.contains(tensor) || file.unsupported().count(tensor), where)
        << "weight_map: tensor '" << tensor << "' is not in '" << shard << "'";
  return file;
}

}  // namespace tenon
