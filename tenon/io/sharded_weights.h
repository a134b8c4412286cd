// Weights in several safetensors files, which a *.safetensors.index.json lists: opened one by one, so that a loader
// that lets each go before the next never has more than one mapped.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/io/safetensors.h"

namespace tenon {

/// The index of sharded weights. Immutable; a plain value.
class ShardedWeights {
 public:
  /// Reads the index and looks whether its files are there, without opening any. Error(Model): an index that is none,
  /// file names that are no plain names (a path could lead out of the folder), files that are missing (all of them are
  /// named).
  static ShardedWeights open(const std::filesystem::path& index);

  /// File names in name order, and the file of each tensor.
  const std::vector<std::string>& shards() const { return shards_; }
  const std::map<std::string, std::string, std::less<>>& shard_of() const { return shard_of_; }
  /// metadata.total_size of the index: bytes of all tensors, as the writer counted them.
  std::optional<int64_t> total_size() const { return total_size_; }

  /// Opens one file. Error(Model), beside what the file itself may have wrong: a tensor that the index puts there is
  /// not there, or one is there that the index puts elsewhere or does not list.
  SafetensorsFile open_shard(const std::string& shard) const;

 private:
  std::filesystem::path index_;
  std::vector<std::string> shards_;
  std::map<std::string, std::string, std::less<>> shard_of_;
  std::map<std::string, size_t> count_;  // tensors that the index puts into each file
  std::optional<int64_t> total_size_;
};

}  // namespace tenon
