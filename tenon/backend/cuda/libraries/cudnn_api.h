// The part of cuDNN's backend API that we use: declared by us, resolved when the library is loaded. Everything in it is
// a descriptor: an object with attributes that is finalized before use. Constants are those of cuDNN 9's header
// cudnn_graph.h, which never renumbers them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tenon/backend/cuda/driver/libraries.h"

namespace tenon::cuda {

using CudnnStatus = int;
enum CudnnCode : CudnnStatus {
  kCudnnSuccess = 0,
  kCudnnDriverFailed = 5001,  ///< when a compiled engine is loaded without a GPU
};
using CudnnHandle = struct CudnnHandleTag*;
using CudnnObject = struct CudnnObjectTag*;

enum class CudnnKind : int {
  Pointwise = 0,
  Convolution = 1,
  Engine = 2,
  EngineConfig = 3,
  Heuristics = 4,
  Plan = 5,
  KnobChoice = 7,
  OperationConvolution = 10,
  OperationPointwise = 13,
  OperationGraph = 15,
  VariantPack = 16,
  Tensor = 17,
  DeviceProperties = 38,
  OperationAttention = 41,
};

/// Element type of an attribute.
enum class CudnnType : int {
  Handle = 0,
  DataType = 1,
  Boolean = 2,
  Int64 = 3,
  Float = 4,
  Pointer = 6,
  ConvolutionMode = 7,
  HeuristicsMode = 8,
  KnobType = 9,
  NumericalNote = 11,
  PointwiseMode = 14,
  Object = 15,
  BehaviorNote = 19,
  Char = 24,
};

enum class CudnnAttribute : int {
  PointwiseMode = 0,
  PointwisePrecision = 1,
  ConvolutionPrecision = 100,
  ConvolutionMode = 101,
  ConvolutionDilations = 102,
  ConvolutionStrides = 103,
  ConvolutionPostPaddings = 104,
  ConvolutionPrePaddings = 105,
  ConvolutionSpatialDims = 106,
  HeuristicsMode = 200,
  HeuristicsGraph = 201,
  HeuristicsResults = 202,
  HeuristicsDeviceProperties = 204,
  EngineConfigEngine = 300,
  EngineConfigKnobChoices = 302,
  PlanEngineConfig = 401,
  PlanWorkspaceSize = 402,
  KnobChoiceType = 600,
  KnobChoiceValue = 601,
  ForwardAlpha = 700,
  ForwardBeta = 701,
  ForwardConvolution = 702,
  ForwardW = 703,
  ForwardX = 704,
  ForwardY = 705,
  PointwiseObject = 750,
  PointwiseX = 751,
  PointwiseB = 752,
  PointwiseY = 753,
  OperationGraphHandle = 800,
  OperationGraphOperations = 801,
  TensorAlignment = 900,
  TensorDataType = 901,
  TensorDimensions = 902,
  TensorStrides = 903,
  TensorId = 906,
  TensorIsVirtual = 907,
  TensorIsByValue = 908,
  PackIds = 1000,
  PackPointers = 1001,
  PackWorkspace = 1003,
  EngineIndex = 1301,
  EngineNumericalNotes = 1303,
  EngineBehaviorNotes = 1305,
  DevicePropertiesJson = 2702,
  AttentionQ = 2800,
  AttentionK = 2801,
  AttentionV = 2802,
  AttentionO = 2803,
  AttentionScale = 2805,
};

enum class CudnnDataType : int { Float = 0, Half = 2, BFloat16 = 9 };

// X(member, export, result, parameters)
#define TENON_CUDNN_FUNCTIONS(X)                                                             \
  X(get_version, "cudnnGetVersion", size_t, ())                                              \
  X(error_text, "cudnnGetErrorString", const char*, (CudnnStatus))                           \
  X(last_error, "cudnnGetLastErrorString", void, (char* text, size_t size))                  \
  X(create_handle, "cudnnCreate", CudnnStatus, (CudnnHandle*))                               \
  X(destroy_handle, "cudnnDestroy", CudnnStatus, (CudnnHandle))                              \
  X(set_stream, "cudnnSetStream", CudnnStatus, (CudnnHandle, void* stream))                  \
  X(create, "cudnnBackendCreateDescriptor", CudnnStatus, (CudnnKind, CudnnObject*))          \
  X(destroy, "cudnnBackendDestroyDescriptor", CudnnStatus, (CudnnObject))                    \
  X(finalize, "cudnnBackendFinalize", CudnnStatus, (CudnnObject))                            \
  X(set, "cudnnBackendSetAttribute", CudnnStatus,                                            \
    (CudnnObject, CudnnAttribute, CudnnType, int64_t count, const void* elements))           \
  X(get, "cudnnBackendGetAttribute", CudnnStatus,                                            \
    (CudnnObject, CudnnAttribute, CudnnType, int64_t room, int64_t * count, void* elements)) \
  X(execute, "cudnnBackendExecute", CudnnStatus, (CudnnHandle, CudnnObject plan, CudnnObject variant_pack))

/// cuDNN's functions. Loading needs no GPU.
class CudnnApi {
 public:
  /// Throws Error(Device) with the command that installs it if it is missing or older than 9.13.1 (attention as one
  /// operation, plans without a device).
  explicit CudnnApi(const SearchSettings& settings = SearchSettings::from_environment());

  /// In the library's numbering: 91900 for 9.19.0.
  size_t version() const { return version_; }
  const std::filesystem::path& path() const { return library_.path(); }
  /// Throws Error(Device) with the failed action and the library's own message.
  void check(CudnnStatus status, const std::string& action) const;

#define TENON_CUDNN_MEMBER(member, name, result, parameters) result(*member) parameters = nullptr;
  TENON_CUDNN_FUNCTIONS(TENON_CUDNN_MEMBER)
#undef TENON_CUDNN_MEMBER

 private:
  LoadedLibrary library_;
  size_t version_ = 0;
};

}  // namespace tenon::cuda
