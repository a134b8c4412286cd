// The part of oneDNN's C interface that `bench` uses as a yardstick. It is declared here and resolved when the library
// is loaded, so that neither building nor running Tenon needs it. Numbers and layouts are those of version 2's ABI.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace tenon::cli::onednn {

/// 0 is success.
using Status = int;
using Engine = struct EngineTag*;
using Stream = struct StreamTag*;
using Memory = struct MemoryTag*;
using Primitive = struct PrimitiveTag*;
using PrimitiveDesc = struct PrimitiveDescTag*;
using Dims = int64_t[12];

/// dnnl_memory_desc_t and the descriptors of operations are plain structs of 696 and at most 5976 bytes, which only the
/// library accesses; these are larger.
struct alignas(16) MemoryDesc {
  unsigned char bytes[1024];
};
struct alignas(16) OperationDesc {
  unsigned char bytes[8192];
};
struct Argument {
  int which;
  Memory memory;
};
struct Version {
  int major, minor, patch;
};

enum DataType : int { kBFloat16 = 2, kFloat32 = 3 };
/// Letters are dimensions, slowest first; `kAnyTag`: the operation's preferred layout.
enum Tag : int { kAnyTag = 1, kAb = 3, kAbc = 4, kAcb = 17 };
enum Algorithm : int { kConvolutionDirect = 1, kConvolutionWinograd = 2 };
enum ArgumentName : int { kSource = 1, kDestination = 17, kWeights = 33 };
enum Query : int { kSourceDesc = 129, kWeightsDesc = 131, kDestinationDesc = 133 };
inline constexpr int kCpu = 1, kInference = 96;
inline constexpr unsigned kInOrder = 1;

// X(member, result, parameters); the exported name is "dnnl_" and the member's name.
#define TENON_ONEDNN_FUNCTIONS(X)                                                                            \
  X(version, const Version*, ())                                                                             \
  X(engine_create, Status, (Engine*, int kind, size_t index))                                                \
  X(engine_destroy, Status, (Engine))                                                                        \
  X(stream_create, Status, (Stream*, Engine, unsigned flags))                                                \
  X(stream_wait, Status, (Stream))                                                                           \
  X(stream_destroy, Status, (Stream))                                                                        \
  X(memory_desc_init_by_tag, Status, (MemoryDesc*, int rank, const int64_t* dims, DataType, Tag))            \
  X(memory_desc_get_size, size_t, (const MemoryDesc*))                                                       \
  X(memory_create, Status, (Memory*, const MemoryDesc*, Engine, void* data))                                 \
  X(memory_destroy, Status, (Memory))                                                                        \
  X(matmul_desc_init, Status,                                                                                \
    (OperationDesc*, const MemoryDesc* a, const MemoryDesc* b, const MemoryDesc* bias, const MemoryDesc* c)) \
  X(convolution_forward_desc_init, Status,                                                                   \
    (OperationDesc*, int kind, Algorithm, const MemoryDesc* x, const MemoryDesc* w, const MemoryDesc* bias,  \
     const MemoryDesc* y, const int64_t* strides, const int64_t* pads_before, const int64_t* pads_behind))   \
  X(softmax_forward_desc_init, Status, (OperationDesc*, int kind, const MemoryDesc*, int axis))              \
  X(primitive_desc_create, Status,                                                                           \
    (PrimitiveDesc*, const OperationDesc*, const void* attributes, Engine, PrimitiveDesc hint))              \
  X(primitive_desc_query_md, const MemoryDesc*, (PrimitiveDesc, Query, int index))                           \
  X(primitive_desc_destroy, Status, (PrimitiveDesc))                                                         \
  X(primitive_create, Status, (Primitive*, PrimitiveDesc))                                                   \
  X(primitive_execute, Status, (Primitive, Stream, int count, const Argument*))                              \
  X(primitive_destroy, Status, (Primitive))

struct Api {
#define TENON_ONEDNN_MEMBER(member, result, parameters) result(*member) parameters = nullptr;
  TENON_ONEDNN_FUNCTIONS(TENON_ONEDNN_MEMBER)
#undef TENON_ONEDNN_MEMBER
  /// From the OpenMP runtime that oneDNN is linked with; null if it uses other threads.
  void (*set_threads)(int) = nullptr;
  std::string version_text;  ///< "2.6.3"
};

/// The library of this machine, loaded on the first call, or why it is missing and which package provides it.
struct Found {
  const Api* api = nullptr;
  std::string problem;
};
const Found& find();

}  // namespace tenon::cli::onednn
