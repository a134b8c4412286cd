// The part of NVIDIA's driver API that we use: declared by us, resolved when the driver is loaded. Names are those of
// the driver's exports, where a suffix (cuMemAlloc_v2) means the version with 64-bit sizes, which the official header
// selects with macros.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/driver/libraries.h"

namespace tenon::cuda {

/// 0 is success.
using DriverResult = int;
using DeviceAddress = uint64_t;
using ContextHandle = struct ContextTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using GraphHandle = struct GraphTag*;
using GraphExecHandle = struct GraphExecTag*;

/// For create_stream: a stream that does not synchronize with the default stream.
inline constexpr unsigned kNonBlockingStream = 1;

enum DriverCode : DriverResult { kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100 };

enum class DeviceAttribute : int {
  Multiprocessors = 16,
  CapabilityMajor = 75,
  CapabilityMinor = 76,
  SharedBytesPerBlock = 97,  ///< with opt-in
};
enum class FunctionAttribute : int { DynamicSharedBytes = 8, NonPortableCluster = 14 };

/// CUlaunchAttribute.
struct LaunchAttribute {
  enum Id : int { kCluster = 4, kOverlap = 6 };
  int id = 0;
  int padding = 0;
  union {
    unsigned cluster[3];
    int flag;
    char bytes[64] = {};
  };
};
static_assert(sizeof(LaunchAttribute) == 72);

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56);

// X(member, export, parameters)
#define TENON_DRIVER_FUNCTIONS(X)                                                                          \
  X(init, "cuInit", (unsigned flags))                                                                      \
  X(device_count, "cuDeviceGetCount", (int*))                                                              \
  X(device, "cuDeviceGet", (int* device, int ordinal))                                                     \
  X(device_name, "cuDeviceGetName", (char*, int length, int device))                                       \
  X(device_attribute, "cuDeviceGetAttribute", (int*, DeviceAttribute, int device))                         \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t*, int device))                                           \
  X(retain_context, "cuDevicePrimaryCtxRetain", (ContextHandle*, int device))                              \
  X(release_context, "cuDevicePrimaryCtxRelease_v2", (int device))                                         \
  X(set_context, "cuCtxSetCurrent", (ContextHandle))                                                       \
  X(get_context, "cuCtxGetCurrent", (ContextHandle*))                                                      \
  X(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                       \
  X(allocate, "cuMemAlloc_v2", (DeviceAddress*, size_t))                                                   \
  X(free, "cuMemFree_v2", (DeviceAddress))                                                                 \
  X(allocate_host, "cuMemHostAlloc", (void**, size_t, unsigned flags))                                     \
  X(free_host, "cuMemFreeHost", (void*))                                                                   \
  X(copy_in, "cuMemcpyHtoDAsync_v2", (DeviceAddress, const void*, size_t, StreamHandle))                   \
  X(pointer_attribute, "cuPointerGetAttribute", (void*, int, DeviceAddress))                               \
  X(copy_out, "cuMemcpyDtoHAsync_v2", (void*, DeviceAddress, size_t, StreamHandle))                        \
  X(copy, "cuMemcpyDtoDAsync_v2", (DeviceAddress to, DeviceAddress from, size_t, StreamHandle))            \
  X(fill, "cuMemsetD8Async", (DeviceAddress, unsigned char, size_t, StreamHandle))                         \
  X(create_stream, "cuStreamCreate", (StreamHandle*, unsigned flags))                                      \
  X(destroy_stream, "cuStreamDestroy_v2", (StreamHandle))                                                  \
  X(synchronize, "cuStreamSynchronize", (StreamHandle))                                                    \
  X(create_event, "cuEventCreate", (EventHandle*, unsigned flags))                                         \
  X(destroy_event, "cuEventDestroy_v2", (EventHandle))                                                     \
  X(record_event, "cuEventRecord", (EventHandle, StreamHandle))                                            \
  X(wait_event, "cuStreamWaitEvent", (StreamHandle, EventHandle, unsigned flags))                          \
  X(begin_capture, "cuStreamBeginCapture_v2", (StreamHandle, int mode))                                    \
  X(end_capture, "cuStreamEndCapture", (StreamHandle, GraphHandle*))                                       \
  X(instantiate, "cuGraphInstantiateWithFlags", (GraphExecHandle*, GraphHandle, unsigned long long flags)) \
  X(upload_graph, "cuGraphUpload", (GraphExecHandle, StreamHandle))                                        \
  X(launch_graph, "cuGraphLaunch", (GraphExecHandle, StreamHandle))                                        \
  X(destroy_graph, "cuGraphDestroy", (GraphHandle))                                                        \
  X(graph_nodes, "cuGraphGetNodes", (GraphHandle, void** nodes, size_t* number))                           \
  X(destroy_graph_exec, "cuGraphExecDestroy", (GraphExecHandle))                                           \
  X(load_module, "cuModuleLoadData", (ModuleHandle*, const void* image))                                   \
  X(unload_module, "cuModuleUnload", (ModuleHandle))                                                       \
  X(module_function, "cuModuleGetFunction", (FunctionHandle*, ModuleHandle, const char* name))             \
  X(set_function_attribute, "cuFuncSetAttribute", (FunctionHandle, FunctionAttribute, int))                \
  X(launch, "cuLaunchKernelEx", (const LaunchConfig*, FunctionHandle, void** parameters, void** extra))    \
  X(encode_tiled, "cuTensorMapEncodeTiled",                                                                \
    (TensorMap*, int type, uint32_t rank, void* address, const uint64_t* extents, const uint64_t* strides, \
     const uint32_t* box, const uint32_t* element_strides, int interleave, int swizzle, int l2_promotion,  \
     int outside))                                                                                         \
  X(error_name, "cuGetErrorName", (DriverResult, const char**))                                            \
  X(error_text, "cuGetErrorString", (DriverResult, const char**))

/// The driver's functions. Loading them does not mean that there is a GPU.
class DriverApi {
 public:
  /// Throws Error(Device) that says what to install if there is no driver, or one older than we need.
  explicit DriverApi(const SearchSettings& settings = SearchSettings::from_environment());

  /// In the driver's numbering: 13000 for CUDA 13.0.
  int version() const { return version_; }
  const std::filesystem::path& path() const { return library_.path(); }
  /// "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered".
  std::string describe(DriverResult result) const;

#define TENON_DRIVER_MEMBER(member, name, parameters) DriverResult(*member) parameters = nullptr;
  TENON_DRIVER_FUNCTIONS(TENON_DRIVER_MEMBER)
#undef TENON_DRIVER_MEMBER

 private:
  LoadedLibrary library_;
  int version_ = 0;
};

}  // namespace tenon::cuda
