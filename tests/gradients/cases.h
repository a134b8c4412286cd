// The programs whose gradients were recorded from PyTorch (tools/fixtures/gradients.py), written as expressions.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tenon/core/host_tensor.h"
#include "tenon/plan/plan.h"

namespace tenon::gradient_cases {

struct Case {
  std::string name;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::map<std::string, HostTensor> tensors;  ///< the leaves' values
  std::vector<Result> results;                ///< gradients by the name of their leaf, and a loss
  Expr forward;                               ///< of a network: the value that its loss is computed from
  nlohmann::json expect;
};

/// All cases of tests/fixtures/gradients.json. `chunk`: rows of logits at a time.
std::vector<Case> all_cases(int64_t chunk = 5);
/// One of them; throws std::out_of_range.
Case case_of(const std::string& name, int64_t chunk = 5);

}  // namespace tenon::gradient_cases
