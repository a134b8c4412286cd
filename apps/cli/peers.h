// Peers that `tenon bench` measures in the same run, each a program of its own.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/cli/parts.h"

namespace tenon::cli {

struct PeerRun {
  std::string part;
  PartRequest request;
  DType dtype = DType::BF16;
  int threads = 0, runs = 5;
  std::string device = "cpu";  ///< or cuda, cuda:1, ..
  std::string mode = "both";   ///< eager, compile, both, frozen, graphs or all
  std::string python;          ///< interpreter; empty: the environment of tools/setup.sh --peers
};

/// The interpreter named by `program` (PeerRun::python). Error(Usage) if there is none.
std::filesystem::path peer_python(const std::string& program);

/// Runs PyTorch on the same weights (passed in a file). Returns the output of bench/peers/torch_peer.py. Error(Usage)
/// if its environment is missing or it has no such network; Error(Internal) if it fails.
nlohmann::json run_torch(const ModelParts& model, const PeerRun& run);

}  // namespace tenon::cli
