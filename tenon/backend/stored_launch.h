// Launches whose results are kept like weights: they read only weights, and run when a plan is prepared.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "tenon/backend/backend.h"
#include "tenon/backend/kernel.h"
#include "tenon/backend/weights.h"
#include "tenon/kernels/launch.h"

namespace tenon {

/// A plan's stored launches as weight requests, in order.
class StoredLaunches {
 public:
  explicit StoredLaunches(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  /// A request for the launch's outputs, each keyed by its expression over parameters. `kernel` does the first run.
  WeightRequest request(const Launch& launch, std::shared_ptr<Kernel> kernel);

 private:
  std::shared_ptr<Backend> backend_;
  Graph graph_;
  std::map<std::string, Expr> values_;       // of stored buffers, over parameters
  std::map<std::string, std::string> keys_;  // of stored buffers
};

/// Runs a launch once with its own weights and scratch, and waits for it.
void run_alone(Backend& backend, Kernel& kernel, const WeightMaking& with, const BufferTable& buffers);

/// Bytes that a stored launch occupies while it runs: its weights, and what its kernel reports.
int64_t transient_bytes(const Kernel& kernel);

}  // namespace tenon
