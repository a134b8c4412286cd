// One block of a network in three ways: node by node, with the maths between library calls fused, and as Tenon plans
// it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/cli/parts.h"

namespace tenon::cli {

struct ComparedLaunch {
  std::string name, skeleton, maths, type;  ///< maths: its nodes, in order
  int64_t bytes = 0;
};
/// One way to run the block.
struct ComparedWay {
  std::string key, title;
  std::vector<ComparedLaunch> launches;
  int64_t bytes() const;
};
struct Comparison {
  std::string model, part, block, works_on, type;
  std::vector<ComparedWay> ways;  ///< "nodes", "compiler", "tenon"
};

/// Compares one block: the second of the part's numbered blocks with most launches (or the first if there is only one).
/// It consists of all launches after the last anchor of the previous block, up to its own last anchor. In every way,
/// values between launches count in the network's type, as frameworks store them. Error(Usage) if no launch belongs to
/// a numbered block.
Comparison compare(const ModelParts& model, const std::string& part, const PartRequest& request,
                   const NetworkOptions& options);

std::string comparison_text(const Comparison& c);
nlohmann::ordered_json comparison_json(const Comparison& c);

}  // namespace tenon::cli
