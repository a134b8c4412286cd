// Weights in several safetensors files listed by a *.safetensors.index.json. Files are opened one by one, so that a
// loader that closes each before the next has at most one mapped.
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
  /// Reads the index and checks that its files exist, without opening them. Error(Model): an invalid index, file names
  /// that are not plain (a path could lead out of the folder), missing files (all are named).
  static ShardedWeights open(const std::filesystem::path& index);

  /// File names in order, and the file of each tensor.
  const std::vector<std::string>& shards() const { return shards_; }
  const std::map<std::string, std::string, std::less<>>& shard_of() const { return shard_of_; }
  /// metadata.total_size of the index: bytes of all tensors, as computed by the writer.
  std::optional<int64_t> total_size() const { return total_size_; }

  /// Opens one file. Error(Model), besides errors in the file itself: a tensor that the index places here is missing,
  /// or one is here that the index places elsewhere or does not list.
  SafetensorsFile open_shard(const std::string& shard) const;

 private:
  std::filesystem::path index_;
  std::vector<std::string> shards_;
  std::map<std::string, std::string, std::less<>> shard_of_;
  std::map<std::string, size_t> count_;  // number of tensors that the index places in each file
  std::optional<int64_t> total_size_;
};

}  // namespace tenon
