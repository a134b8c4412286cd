// What the gemm skeleton needs from a vendor's library for products: cuBLASLt (libraries/cublaslt.h), or a stand-in in
// tests.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/cuda/libraries/library_call.h"
#include "tenon/core/dtype.h"

namespace tenon::cuda {

/// Strides of rows with contiguous elements: elements from one row to the next, and from one matrix of a batch to the
/// next.
struct MatrixStrides {
  int64_t row = 0, batch = 0;
  bool operator==(const MatrixStrides&) const = default;
};

/// d = alpha a b^T + beta c + bias, `batch` times: a [m, k], b [n, k], c and d [m, n], bias [n] for all rows, all of
/// `type` (f16 or bf16); products and sums in f32, rounded once. c is read only if beta is not 0.
struct MatmulProblem {
  DType type = DType::F16;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  MatrixStrides a, b, c, d;
  float alpha = 1, beta = 0;
  bool bias = false;
};

/// How the library does it, in its own terms: its encoding of an algorithm with its configuration, which is the same
/// everywhere for the same version.
struct MatmulAlgorithm {
  std::string version;  ///< the library's: "13.1.0"
  std::array<uint64_t, 8> words = {};
  bool operator==(const MatmulAlgorithm&) const = default;
  /// "13.1.0 42-1500000000-0-3": version, and words in hex up to the last that is not 0. parse() accepts only that.
  std::string text() const;
  static std::optional<MatmulAlgorithm> parse(const std::string& text);
};

class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;
  /// At most `most` algorithms that give the same bits in every run, those that the library ranks fastest first; none
  /// if it does not support the problem. Throws Error(Device).
  virtual std::vector<MatmulAlgorithm> likeliest(const MatmulProblem& problem, int most) = 0;
  /// The call, on the addresses of a, b, d, then c if beta is not 0, then the bias if there is one; null if this
  /// library cannot run the algorithm (another version, another GPU).
  virtual std::shared_ptr<LibraryCall> plan(const MatmulProblem& problem, const MatmulAlgorithm& algorithm) = 0;
  /// For people: "cublaslt algorithm 66 tile 21 stages 36 splits 1".
  virtual std::string describe(const MatmulAlgorithm& algorithm) = 0;
};

}  // namespace tenon::cuda
