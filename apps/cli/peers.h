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
  std::string device = "cpu";  ///< or cuda
  std::string mode = "both";   ///< eager, compile, both, frozen, graphs or all
  std::string python;          ///< interpreter; empty: the environment of tools/setup.sh --peers
};

/// The interpreter that `program`, a PeerRun's `python`, names. Error(Usage) if there is none.
std::filesystem::path peer_python(const std::string& program);

/// PyTorch on the same weights (handed over in a file). Returns what bench/peers/torch_peer.py prints. Error(Usage) if
/// its environment is missing or has no such network; Error(Internal) if it fails.
nlohmann::json run_torch(const ModelParts& model, const PeerRun& run);

}  // namespace tenon::cli
