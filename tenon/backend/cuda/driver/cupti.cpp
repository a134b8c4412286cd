#include "tenon/backend/cuda/driver/cupti.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

enum ActivityKind : int { kMemcpy = 1, kMemset = 2, kConcurrentKernel = 10 };
constexpr int kTraced[] = {kMemcpy, kMemset, kConcurrentKernel};
constexpr size_t kBufferBytes = 8 << 20;
constexpr double kNanosecond = 1e-9;

// The common prefix of all these record kinds, the same in every version since CUDA 12.
struct Record {
  uint32_t kind;
  uint32_t details[3];
  uint64_t begin, end;  // nanoseconds
};
static_assert(offsetof(Record, begin) == 16 && offsetof(Record, end) == 24);

using RequestBuffer = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
using CompleteBuffer = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);

struct CuptiApi {
  int (*register_callbacks)(RequestBuffer, CompleteBuffer);
  int (*enable)(int kind);
  int (*disable)(int kind);
  int (*flush)(uint32_t flags);
  int (*next)(uint8_t* buffer, size_t valid, void** record);
};

// Data handed over by the library's thread.
struct Collected {
  std::mutex mutex;
  std::vector<DeviceWork> work;
  CuptiApi api{};
  bool busy = false;  // a trace exists
};
Collected& collected() {
  static Collected all;
  return all;
}

void request(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(16, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *max_records = 0;
}

void complete(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Collected& c = collected();
  const std::scoped_lock lock(c.mutex);
  for (void* at = nullptr; valid > 0 && c.api.next(buffer, valid, &at) == 0;) {
    Record r{};
    std::memcpy(&r, at, sizeof r);
    c.work.push_back({.copy = r.kind == kMemcpy,
                      .begin = static_cast<double>(r.begin) * kNanosecond,
                      .end = static_cast<double>(r.end) * kNanosecond});
  }
  std::free(buffer);
}

class CuptiTrace : public Trace {
 public:
  explicit CuptiTrace(LoadedLibrary library) : library_(std::move(library)) {
    Collected& c = collected();
    const std::scoped_lock lock(c.mutex);
    TENON_CHECK(Internal, !c.busy, "cupti") << "a trace is already running";
    bind(c.api.register_callbacks, "cuptiActivityRegisterCallbacks");
    bind(c.api.enable, "cuptiActivityEnable");
    bind(c.api.disable, "cuptiActivityDisable");
    bind(c.api.flush, "cuptiActivityFlushAll");
    bind(c.api.next, "cuptiActivityGetNextRecord");
    check(c.api.register_callbacks(&request, &complete), "register buffers");
    for (const int kind : kTraced) check(c.api.enable(kind), "trace kernels");
    c.work.clear();
    c.busy = true;
  }
  ~CuptiTrace() override {
    Collected& c = collected();
    for (const int kind : kTraced) c.api.disable(kind);
    c.api.flush(kFlushForced);  // calls complete()
    const std::scoped_lock lock(c.mutex);
    c.busy = false;
  }
  CuptiTrace(const CuptiTrace&) = delete;
  CuptiTrace& operator=(const CuptiTrace&) = delete;

  std::vector<DeviceWork> take() override {
    Collected& c = collected();
    check(c.api.flush(kFlushForced), "deliver its records");
    const std::scoped_lock lock(c.mutex);
    std::vector<DeviceWork> out = std::move(c.work);
    c.work.clear();
    std::ranges::sort(out, {}, &DeviceWork::begin);
    return out;
  }

 private:
  static constexpr uint32_t kFlushForced = 1;

  template <class Function>
  void bind(Function*& function, const char* name) {
    function = library_.function<Function>(name);
    TENON_CHECK(Device, function, "cupti") << library_.path().string() << " has no " << name;
  }
  static void check(int status, const char* action) {
    TENON_CHECK(Device, status == 0, "cupti")
        << "NVIDIA's profiler cannot " << action << ": error " << status << " (35: not permitted for this user)";
  }

  LoadedLibrary library_;
};

}  // namespace

std::unique_ptr<Trace> trace_kernels(const SearchSettings& settings) {
  return std::make_unique<CuptiTrace>(
      need_library(Library::Cupti, "kernels cannot be timed inside a graph: ", settings));
}

}  // namespace tenon::cuda
