// Launches whose results are kept where weights are: they read weights alone, and run when a plan is prepared.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "tenon/backend/backend.h"
#include "tenon/kernels/launch.h"

namespace tenon {

/// The stored launches of a plan as requests, in order.
class StoredLaunches {
 public:
  explicit StoredLaunches(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  /// What the launch writes, each output by its expression over parameters. `kernel` runs it the first time.
  WeightRequest request(const Launch& launch, std::shared_ptr<Kernel> kernel);

 private:
  std::shared_ptr<Backend> backend_;
  Graph graph_;
  std::map<std::string, Expr> values_;       // of stored buffers, over parameters
  std::map<std::string, std::string> keys_;  // of stored buffers
};

/// Runs a launch once, with weights and scratch of its own, and waits for it.
void run_alone(Backend& backend, Kernel& kernel, const WeightMaking& with, const BufferTable& buffers);

/// Bytes that running a stored launch takes for as long as it takes: its weights, and what its kernel says.
int64_t transient_bytes(const Kernel& kernel);

}  // namespace tenon
