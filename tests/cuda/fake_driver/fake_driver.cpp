#include "tests/cuda/fake_driver/fake_driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tenon/backend/cuda/driver/driver_api.h"

using namespace tenon::cuda;

namespace {

FakeDriverState state;

// Handles that are never dereferenced may have any address.
template <class Handle>
Handle handle(uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}
// The result of a call that does nothing else; a fault persists.
DriverResult result(int wanted = 0) { return state.faulted ? state.fault_at_wait : wanted; }
DriverResult once(int& failure) {
  const int code = failure;
  failure = 0;
  return result(code);
}
size_t size_of(DeviceAddress memory) { return *(reinterpret_cast<size_t*>(memory) - 32); }

}  // namespace

extern "C" {

FakeDriverState* fake_driver_state() { return &state; }

DriverResult cuInit(unsigned) { return state.init_result; }
DriverResult cuDriverGetVersion(int* version) { return *version = state.version, 0; }
DriverResult cuDeviceGetCount(int* count) { return *count = state.devices, 0; }
DriverResult cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
DriverResult cuDeviceGetName(char* name, int length, int) { return std::strncpy(name, "Fake GPU", length), 0; }
DriverResult cuDeviceGetAttribute(int* value, DeviceAttribute which, int) {
  switch (which) {
    case DeviceAttribute::Multiprocessors:
      *value = 132;
      break;
    case DeviceAttribute::CapabilityMajor:
      *value = state.major;
      break;
    case DeviceAttribute::CapabilityMinor:
      *value = state.minor;
      break;
    case DeviceAttribute::SharedBytesPerBlock:
      *value = 227 * 1024;
      break;
  }
  return 0;
}
DriverResult cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = state.memory, 0; }
DriverResult cuDevicePrimaryCtxRetain(ContextHandle* context, int device) {
  ++state.contexts;
  return *context = handle<ContextHandle>(16 + static_cast<uintptr_t>(device)), 0;
}
DriverResult cuDevicePrimaryCtxRelease_v2(int) { return --state.contexts, 0; }
DriverResult cuCtxSetCurrent(ContextHandle context) {
  state.current_context = reinterpret_cast<uintptr_t>(context);
  return 0;
}
DriverResult cuCtxGetCurrent(ContextHandle* context) {
  return *context = handle<ContextHandle>(state.current_context), 0;
}
DriverResult cuMemGetInfo_v2(size_t* left, size_t* total) {
  *left = state.memory - state.used;
  return *total = state.memory, result();
}

// Device memory is host memory, preceded by its size.
DriverResult cuMemAlloc_v2(DeviceAddress* memory, size_t bytes) {
  if (state.used + bytes > state.memory) return result(kOutOfMemory);
  auto* p = static_cast<size_t*>(std::aligned_alloc(256, 256 + (bytes + 255) / 256 * 256));
  *p = bytes;
  std::memset(p + 32, 0xff, bytes);
  state.used += bytes;
  ++state.allocations;
  *memory = reinterpret_cast<DeviceAddress>(p + 32);
  return result();
}
DriverResult cuMemFree_v2(DeviceAddress memory) {
  state.used -= size_of(memory);
  --state.allocations;
  std::free(reinterpret_cast<size_t*>(memory) - 32);
  return result();
}
DriverResult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  if (state.refuse_pinned && state.pinned + bytes >= state.refuse_pinned) return result(kOutOfMemory);
  auto* p = static_cast<size_t*>(std::aligned_alloc(256, 256 + (bytes + 255) / 256 * 256));
  *p = bytes;
  state.pinned += bytes;
  state.max_pinned = std::max(state.max_pinned, state.pinned);
  state.pinned_memory.insert(p + 32);
  return *memory = p + 32, result();
}
DriverResult cuPointerGetAttribute(void* type, int, DeviceAddress memory) {
  constexpr int kUnknown = 1;
  if (!state.pinned_memory.contains(reinterpret_cast<void*>(memory))) return kUnknown;
  return *static_cast<unsigned*>(type) = 1, result();
}
DriverResult cuMemFreeHost(void* memory) {
  state.pinned_memory.erase(memory);
  state.pinned -= size_of(reinterpret_cast<DeviceAddress>(memory));
  return std::free(static_cast<size_t*>(memory) - 32), result();
}
DriverResult cuMemcpyHtoDAsync_v2(DeviceAddress to, const void* from, size_t bytes, StreamHandle stream) {
  if (state.capturing && reinterpret_cast<uintptr_t>(stream) == state.beside) {
    state.joined = false;
    return ++state.recorded_copies, result();
  }
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), result();
}
DriverResult cuMemcpyDtoHAsync_v2(void* to, DeviceAddress from, size_t bytes, StreamHandle) {
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), result();
}
DriverResult cuMemcpyDtoDAsync_v2(DeviceAddress to, DeviceAddress from, size_t bytes, StreamHandle) {
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), result();
}
DriverResult cuMemsetD8Async(DeviceAddress to, unsigned char value, size_t bytes, StreamHandle) {
  if (const DriverResult failed = once(state.fail_fill)) return failed;
  return std::memset(reinterpret_cast<void*>(to), value, bytes), 0;
}

DriverResult cuStreamCreate(StreamHandle* stream, unsigned) {
  ++state.streams;
  return *stream = handle<StreamHandle>((state.made += 0x100) + state.current_context), 0;
}
DriverResult cuEventCreate(EventHandle* event, unsigned) {
  ++state.events;
  return *event = handle<EventHandle>((state.made += 0x100) + state.current_context), 0;
}
DriverResult cuEventDestroy_v2(EventHandle) { return --state.events, 0; }
DriverResult cuEventRecord(EventHandle event, StreamHandle stream) {
  const auto on = reinterpret_cast<uintptr_t>(stream);
  if (state.capturing && on == state.capture) state.capture_event = reinterpret_cast<uintptr_t>(event);
  if (state.capturing && on == state.beside) state.beside_event = reinterpret_cast<uintptr_t>(event);
  return state.marked = reinterpret_cast<uintptr_t>(stream), result();
}
DriverResult cuStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  state.waiting = reinterpret_cast<uintptr_t>(stream);
  if (state.capturing && state.waiting == state.capture && reinterpret_cast<uintptr_t>(event) == state.beside_event)
    state.joined = true;
  if (state.capturing && state.waiting != state.capture && reinterpret_cast<uintptr_t>(event) == state.capture_event)
    state.beside = state.waiting;
  return state.waited = reinterpret_cast<uintptr_t>(event), result();
}
DriverResult cuStreamDestroy_v2(StreamHandle) { return --state.streams, 0; }
DriverResult cuStreamSynchronize(StreamHandle) {
  ++state.waits;
  state.faulted = state.fault_at_wait != 0;
  return result();
}
DriverResult cuStreamBeginCapture_v2(StreamHandle stream, int) {
  state.capturing = true;
  state.capture = reinterpret_cast<uintptr_t>(stream);
  state.recorded = state.recorded_copies = 0;
  state.beside = state.beside_event = state.capture_event = 0;
  state.joined = true;
  return result();
}
DriverResult cuStreamEndCapture(StreamHandle, GraphHandle* graph) {
  state.capturing = false;
  constexpr int kUnjoined = 904;
  if (!state.joined) return *graph = nullptr, kUnjoined;
  ++state.graphs;
  return *graph = handle<GraphHandle>(48), result();
}
DriverResult cuGraphInstantiateWithFlags(GraphExecHandle* exec, GraphHandle, unsigned long long) {
  if (const DriverResult failed = once(state.fail_instantiate)) return failed;
  ++state.graph_execs;
  return *exec = handle<GraphExecHandle>(64), 0;
}
DriverResult cuGraphUpload(GraphExecHandle, StreamHandle) { return result(); }
DriverResult cuGraphLaunch(GraphExecHandle, StreamHandle) { return ++state.graph_launches, result(); }
DriverResult cuGraphDestroy(GraphHandle) { return --state.graphs, 0; }
DriverResult cuGraphGetNodes(GraphHandle, void**, size_t* number) {
  return *number = static_cast<size_t>(state.recorded + state.recorded_copies), result();
}
DriverResult cuGraphExecDestroy(GraphExecHandle) { return --state.graph_execs, 0; }

DriverResult cuModuleLoadData(ModuleHandle* module, const void* image) {
  if (const DriverResult failed = once(state.fail_load)) return failed;
  ++state.modules;
  return *module = handle<ModuleHandle>(80), std::memcmp(image,
                                                         "\x7f"
                                                         "ELF",
                                                         4) == 0
                                                 ? 0
                                                 : 200;
}
DriverResult cuModuleUnload(ModuleHandle) { return --state.modules, 0; }
DriverResult cuModuleGetFunction(FunctionHandle* function, ModuleHandle, const char* name) {
  *function = handle<FunctionHandle>(96);
  return std::strcmp(name, "tenon_kernel") == 0 ? 0 : 500;
}
DriverResult cuFuncSetAttribute(FunctionHandle, FunctionAttribute which, int value) {
  if (which == FunctionAttribute::DynamicSharedBytes) state.dynamic_shared_allowed = value;
  return 0;
}
DriverResult cuLaunchKernelEx(const LaunchConfig* config, FunctionHandle, void** parameters, void**) {
  if (const DriverResult failed = once(state.fail_launch)) return failed;
  const bool recorded = state.capturing && reinterpret_cast<uintptr_t>(config->stream) == state.capture;
  ++(recorded ? state.recorded : state.launches);
  std::copy(config->grid, config->grid + 3, state.grid);
  state.threads = config->block[0];
  state.stream = reinterpret_cast<uintptr_t>(config->stream);
  state.context = state.current_context;
  state.shared_bytes = config->shared_bytes;
  state.cluster = 0;
  state.overlaps = false;
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    if (config->attributes[i].id == LaunchAttribute::kCluster) state.cluster = config->attributes[i].cluster[0];
    if (config->attributes[i].id == LaunchAttribute::kOverlap) state.overlaps = config->attributes[i].flag != 0;
  }
  std::memcpy(state.first_parameters, parameters[0], sizeof state.first_parameters);
  return 0;
}
DriverResult cuTensorMapEncodeTiled(TensorMap*, int type, uint32_t rank, void*, const uint64_t*,
                                    const uint64_t* strides, const uint32_t* box, const uint32_t*, int, int swizzle,
                                    int, int) {
  state.map_type = type;
  state.map_swizzle = swizzle;
  state.map_rank = rank;
  std::copy(box, box + rank, state.map_box);
  std::copy(strides, strides + rank - 1, state.map_strides);
  return 0;
}
DriverResult cuGetErrorName(DriverResult code, const char** name) {
  return *name = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE", 0;
}
DriverResult cuGetErrorString(DriverResult, const char** text) { return *text = "as the test wanted", 0; }

}  // extern "C"
