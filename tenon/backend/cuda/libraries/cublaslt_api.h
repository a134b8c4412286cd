// The part of cuBLASLt that we use: declared by us, resolved when the library is loaded. Constants are those of its
// ABI, the same in versions 12 and 13.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tenon/backend/cuda/driver/libraries.h"

namespace tenon::cuda::lt {

/// 0 is success.
using Status = int;
enum StatusCode : Status { kSuccess = 0, kInvalidValue = 7, kNotSupported = 15 };

using Handle = struct HandleTag*;
using Descriptor = struct DescriptorTag*;
using Layout = struct LayoutTag*;
using Preference = struct PreferenceTag*;

/// cublasLtMatmulAlgo_t: may be stored and used again with the same version.
struct Algorithm {
  uint64_t words[8] = {};
};
/// cublasLtMatmulHeuristicResult_t.
struct Result {
  Algorithm algorithm;
  size_t workspace_bytes = 0;
  Status status = kSuccess;
  float waves = 0;
  int reserved[4] = {};
};
static_assert(sizeof(Result) == 96);

/// cudaDataType_t, cublasComputeType_t, cublasOperation_t.
enum DataType : int32_t { kFloat32 = 0, kFloat16 = 2, kBFloat16 = 14 };
inline constexpr int32_t kComputeFloat32 = 68;
inline constexpr int32_t kAsItIs = 0, kTransposed = 1;

enum class DescriptorAttribute : int { TransposeA = 3, TransposeB = 4, Epilogue = 7, BiasPointer = 8, BiasType = 26 };
enum Epilogue : uint32_t { kPlain = 1, kBias = 4 };
enum class LayoutAttribute : int { Type = 0, Rows = 2, Columns = 3, Stride = 4, Batch = 5, BatchStride = 6 };
enum class PreferenceAttribute : int {
  WorkspaceBytes = 1,
  Reductions = 3,  ///< a mask: how split-K sums may be combined
  AlignmentA = 5,
  AlignmentB = 6,
  AlignmentC = 7,
  AlignmentD = 8,
};
enum Reduction : uint32_t { kInPlace = 1, kInComputeType = 2, kInOutputType = 4 };
enum class ConfigAttribute : int { Id = 0, Tile = 1, Splits = 2, Reduction = 3, Stages = 6, Cluster = 8 };

// X(member, parameters); the export is the member's name prefixed with "cublasLt".
#define TENON_CUBLASLT_FUNCTIONS(X)                                                                           \
  X(Create, (Handle*))                                                                                        \
  X(Destroy, (Handle))                                                                                        \
  X(MatmulDescCreate, (Descriptor*, int32_t compute_type, int32_t scale_type))                                \
  X(MatmulDescDestroy, (Descriptor))                                                                          \
  X(MatmulDescSetAttribute, (Descriptor, DescriptorAttribute, const void*, size_t))                           \
  X(MatrixLayoutCreate, (Layout*, int32_t type, uint64_t rows, uint64_t columns, int64_t stride))             \
  X(MatrixLayoutDestroy, (Layout))                                                                            \
  X(MatrixLayoutSetAttribute, (Layout, LayoutAttribute, const void*, size_t))                                 \
  X(MatmulPreferenceCreate, (Preference*))                                                                    \
  X(MatmulPreferenceDestroy, (Preference))                                                                    \
  X(MatmulPreferenceSetAttribute, (Preference, PreferenceAttribute, const void*, size_t))                     \
  X(MatmulAlgoGetHeuristic,                                                                                   \
    (Handle, Descriptor, Layout a, Layout b, Layout c, Layout d, Preference, int most, Result*, int* found))  \
  X(MatmulAlgoCheck, (Handle, Descriptor, Layout a, Layout b, Layout c, Layout d, const Algorithm*, Result*)) \
  X(MatmulAlgoConfigGetAttribute, (const Algorithm*, ConfigAttribute, void*, size_t, size_t*))                \
  X(Matmul,                                                                                                   \
    (Handle, Descriptor, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,   \
     const void* c, Layout, void* d, Layout, const Algorithm*, void* workspace, size_t workspace_bytes, void* stream))

/// The library's functions.
class Api {
 public:
  /// Throws Error(Device) if a function is missing.
  explicit Api(LoadedLibrary library);

  /// "13.1.0".
  const std::string& version() const { return version_; }
  /// Throws Error(Device) with the library's name for the status. `where`: what was requested.
  void check(Status status, const std::string& where) const;

#define TENON_CUBLASLT_MEMBER(member, parameters) Status(*member) parameters = nullptr;
  TENON_CUBLASLT_FUNCTIONS(TENON_CUBLASLT_MEMBER)
#undef TENON_CUBLASLT_MEMBER

 private:
  LoadedLibrary library_;
  std::string version_;
  const char* (*status_name_)(Status) = nullptr;
};

}  // namespace tenon::cuda::lt
