// Products by cuBLASLt. A row-major matrix is the transpose of a column-major one, so the library computes d^T = alpha
// b a^T + beta c^T + bias: its first operand is our b, transposed, its second our a.
#pragma once
#include <memory>

#include "tenon/backend/cuda/driver/libraries.h"
#include "tenon/backend/cuda/libraries/matmul_library.h"

namespace tenon::cuda {

/// Planned calls keep the library open.
class CublasLt : public MatmulLibrary {
 public:
  /// Most workspace that an algorithm may use, in bytes.
  static constexpr int64_t kMaxWorkspace = int64_t{32} << 20;

  /// Throws Error(Device) if the library is damaged or fails to start.
  CublasLt(LoadedLibrary library, MakeCurrent current);

  std::vector<MatmulAlgorithm> likeliest(const MatmulProblem& problem, int most) override;
  std::shared_ptr<LibraryCall> plan(const MatmulProblem& problem, const MatmulAlgorithm& algorithm) override;
  std::string describe(const MatmulAlgorithm& algorithm) override;

  struct Session;

 private:
  std::shared_ptr<const Session> session_;
};

}  // namespace tenon::cuda
