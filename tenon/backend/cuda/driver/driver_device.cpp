#include "tenon/backend/cuda/driver/driver_device.h"

#include <algorithm>
#include <optional>

#include "tenon/backend/cuda/driver/cubin.h"
#include "tenon/backend/cuda/driver/driver_stream.h"
#include "tenon/backend/cuda/libraries/cublaslt.h"
#include "tenon/backend/cuda/libraries/cudnn.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"

namespace tenon::cuda {
namespace {

constexpr int kPortableCluster = 8;
constexpr int kSharedWithoutOptIn = 48 * 1024;

DeviceAddress address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// A kernel: compiled in the background, loaded into the context before its first call.
class DriverFunction : public Function {
 public:
  DriverFunction(std::shared_ptr<DriverContext> context, std::string name, PendingKernel pending)
      : context_(std::move(context)), name_(std::move(name)), pending_(std::move(pending)) {}
  ~DriverFunction() override {
    const KeptContext kept(*context_, std::nothrow);
    if (module_) context_->api().unload_module(module_);
  }
  DriverFunction(const DriverFunction&) = delete;
  DriverFunction& operator=(const DriverFunction&) = delete;

  void enqueue(Stream& stream, const CallShape& shape, std::span<const std::byte> params) override {
    DriverStream& on = DriverStream::of(stream, *context_);
    const KeptContext kept(*context_);
    prepare(shape, params.size());
    start(on, shape, params);
  }
  KernelResources resources() override {
    const std::lock_guard lock(mutex_);
    return code().resources();
  }

 private:
  const CubinKernel& code();
  void load();
  void prepare(const CallShape& shape, size_t params);
  void start(DriverStream& on, const CallShape& shape, std::span<const std::byte> params);

  std::shared_ptr<DriverContext> context_;
  std::string name_;
  std::mutex mutex_;  // guards everything below
  PendingKernel pending_;
  std::optional<CubinKernel> code_;
  ModuleHandle module_ = nullptr;
  FunctionHandle function_ = nullptr;
  int64_t shared_allowed_ = kSharedWithoutOptIn;
  bool large_clusters_ = false;
};

const CubinKernel& DriverFunction::code() {
  if (!code_) code_ = read_cubin_kernel(finished(pending_).cubin, kKernelName);
  return *code_;
}

void DriverFunction::load() {
  if (function_) return;
  const DriverApi& api = context_->api();
  ModuleHandle module = nullptr;
  context_->check(api.load_module(&module, finished(pending_).cubin.data()), "load kernel '" + name_ + "'");
  const DriverResult found = api.module_function(&function_, module, kKernelName);
  if (found != kSuccess) api.unload_module(module);
  context_->check(found, "find the entry point of kernel '" + name_ + "'");
  module_ = module;
}

// Loads the kernel, and rejects calls that the driver would reject without a reason.
void DriverFunction::prepare(const CallShape& shape, size_t params) {
  const std::string where = "kernel " + name_;
  const std::lock_guard lock(mutex_);
  const CubinKernel& kernel = code();
  TENON_CHECK(Internal, static_cast<int>(params) == kernel.argument_bytes, where)
      << "takes " << kernel.argument_bytes << " bytes of arguments but was given " << params;
  TENON_CHECK(Internal, kernel.max_threads == 0 || shape.threads <= kernel.max_threads, where)
      << "is compiled for at most " << kernel.max_threads << " threads but was started with " << shape.threads;
  const int64_t shared = shape.shared_bytes + kernel.static_shared_bytes;
  TENON_CHECK(Internal, shared <= context_->facts().shared_bytes, where)
      << "needs " << shared << " bytes of shared memory; a block has " << context_->facts().shared_bytes;
  load();
  const auto allow = [&](FunctionAttribute attribute, int value) {
    context_->check(context_->api().set_function_attribute(function_, attribute, value),
                    "set up kernel '" + name_ + "'");
  };
  if (shape.shared_bytes > shared_allowed_) {
    allow(FunctionAttribute::DynamicSharedBytes, static_cast<int>(shape.shared_bytes));
    shared_allowed_ = shape.shared_bytes;
  }
  if (shape.cluster > kPortableCluster && !large_clusters_) {
    allow(FunctionAttribute::NonPortableCluster, 1);
    large_clusters_ = true;
  }
}

void DriverFunction::start(DriverStream& on, const CallShape& shape, std::span<const std::byte> params) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0) return;
  LaunchAttribute attributes[2];
  unsigned count = 0;
  if (shape.cluster > 1) {
    attributes[count].id = LaunchAttribute::kCluster;
    attributes[count].cluster[0] = static_cast<unsigned>(shape.cluster);
    attributes[count].cluster[1] = attributes[count].cluster[2] = 1;
    ++count;
  }
  // After a copy on another stream, a kernel must not start before all earlier work is done, since it may read the
  // copied data before its own wait.
  const bool behind_copy = on.takes_wait(), whole = on.starts_behind(shape.starts_next) && shape.reads_early;
  if (shape.overlaps && !whole && !behind_copy && context_->facts().arch == "sm_90a") {
    attributes[count].id = LaunchAttribute::kOverlap;
    attributes[count].flag = 1;
    ++count;
  }
  const auto number = [](int64_t n) { return static_cast<unsigned>(n); };
  const LaunchConfig config{{number(shape.grid_x), number(shape.grid_y), number(shape.grid_z)},
                            {number(shape.threads), 1, 1},
                            number(shape.shared_bytes),
                            on.handle(),
                            attributes,
                            count};
  void* arguments[] = {const_cast<std::byte*>(params.data())};
  on.enqueued(name_);
  context_->check(context_->api().launch(&config, function_, arguments, nullptr), "start kernel '" + name_ + "'");
}

class DriverReplay : public Replay {
 public:
  DriverReplay(std::shared_ptr<DriverContext> context, GraphExecHandle graph, int calls)
      : context_(std::move(context)),
        graph_(graph),
        name_("a recording of " + std::to_string(calls) + " kernel calls") {}
  ~DriverReplay() override {
    const KeptContext kept(*context_, std::nothrow);
    context_->api().destroy_graph_exec(graph_);
  }
  DriverReplay(const DriverReplay&) = delete;
  DriverReplay& operator=(const DriverReplay&) = delete;
  void run(Stream& stream) override {
    DriverStream& on = DriverStream::of(stream, *context_);
    const KeptContext kept(*context_);
    on.enqueued(name_);
    context_->check(context_->api().launch_graph(graph_, on.handle()), "start " + name_);
  }

 private:
  std::shared_ptr<DriverContext> context_;
  GraphExecHandle graph_;
  std::string name_;
};

}  // namespace

DriverDevice::DriverDevice(const DriverOptions& options)
    : context_(std::make_shared<DriverContext>(options.search, options.ordinal)),
      compiler_(context_->facts().arch, options.kernel_folder, options.search, context_->api().version() / 1000,
                options.compile_threads),
      facts_(context_->facts()),
      search_(options.search) {
  constexpr int kLargeArguments = 12010;  // in CUDA's version numbering
  const auto [major, minor] = compiler_.nvrtc().version();
  if (context_->api().version() >= kLargeArguments && major * 1000 + minor * 10 >= kLargeArguments)
    facts_.argument_bytes = kMaxArgumentBytes;
  if (options.batch_invariant) facts_.chosen_samples = kChosenSamples;
  facts_.one_order = options.one_order;
}

int64_t DriverDevice::memory_available() const {
  const KeptContext kept(*context_);
  size_t left = 0, total = 0;
  context_->check(context_->api().memory_info(&left, &total), "query the free memory");
  return static_cast<int64_t>(left);
}

std::shared_ptr<Function> DriverDevice::load(const KernelSource& source) {
  const std::string key = compiler_.key(source);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Function>& function = functions_[key];
  if (!function) function = std::make_shared<DriverFunction>(context_, source.name, compiler_.start(source));
  return function;
}

std::shared_ptr<Stream> DriverDevice::make_stream() { return std::make_shared<DriverStream>(context_); }

bool DriverDevice::takes(const Stream& stream) const { return DriverStream::is_of(stream, *context_); }

std::shared_ptr<Stream> DriverDevice::borrow_stream(void* stream) {
  return std::make_shared<DriverStream>(context_, static_cast<StreamHandle>(stream));
}

std::shared_ptr<void> DriverDevice::allocate(int64_t bytes) {
  const KeptContext kept(*context_);
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  DeviceAddress memory = 0;
  const DriverResult result = context_->api().allocate(&memory, size);
  if (result == kOutOfMemory)
    throw Error(ErrorKind::Memory, facts().name,
                "cannot allocate " + std::to_string(bytes) + " bytes; " + std::to_string(memory_available()) +
                    " bytes are free");
  context_->check(result, "allocate memory");
  std::shared_ptr<void> owner(reinterpret_cast<void*>(memory), [context = context_](void* p) {
    const KeptContext then(*context, std::nothrow);
    context->api().free(address(p));
  });
  context_->clear(memory, size);
  return owner;
}

std::shared_ptr<void> DriverDevice::allocate_pinned(int64_t bytes) {
  constexpr unsigned kPortable = 1;
  const KeptContext kept(*context_);
  void* memory = nullptr;
  const DriverResult result =
      context_->api().allocate_host(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)), kPortable);
  TENON_CHECK(Memory, result != kOutOfMemory, facts().name)
      << "cannot allocate " << bytes << " bytes of pinned memory for offloaded weights";
  context_->check(result, "allocate pinned memory");
  return {memory, [context = context_](void* p) {
            const KeptContext then(*context, std::nothrow);
            context->api().free_host(p);
          }};
}

void DriverDevice::fetch(Stream& stream, void* dst, const void* host, int64_t bytes) {
  if (bytes == 0) return;
  DriverStream& on = DriverStream::of(stream, *context_);
  const KeptContext kept(*context_);
  context_->check(context_->api().copy_in(address(dst), host, static_cast<size_t>(bytes), on.handle()),
                  "copy weights to the GPU");
}

void DriverDevice::copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) {
  DriverStream& on = DriverStream::of(stream, *context_);
  on.not_capturing("copy");
  if (bytes == 0) return;
  const KeptContext kept(*context_);
  context_->check(context_->api().copy_in(address(dst), src, static_cast<size_t>(bytes), on.handle()),
                  "copy to the GPU");
  // From pageable memory, of which the driver knows nothing, it has copied by now.
  constexpr int kMemoryType = 2;
  unsigned type = 0;
  if (context_->api().pointer_attribute(&type, kMemoryType, address(src)) == 0) on.synchronize();
}

void DriverDevice::copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) {
  DriverStream& on = DriverStream::of(stream, *context_);
  on.not_capturing("copy");
  const KeptContext kept(*context_);
  if (bytes > 0)
    context_->check(context_->api().copy_out(dst, address(src), static_cast<size_t>(bytes), on.handle()),
                    "copy from the GPU");
  on.synchronize();
}

void DriverDevice::copy(Stream& stream, void* dst, const void* src, int64_t bytes) {
  if (bytes == 0) return;
  DriverStream& on = DriverStream::of(stream, *context_);
  const KeptContext kept(*context_);
  context_->check(context_->api().copy(address(dst), address(src), static_cast<size_t>(bytes), on.handle()),
                  "copy on the GPU");
}

void DriverDevice::fill_zero(Stream& stream, void* dst, int64_t bytes) {
  if (bytes == 0) return;
  DriverStream& on = DriverStream::of(stream, *context_);
  const KeptContext kept(*context_);
  context_->check(context_->api().fill(address(dst), 0, static_cast<size_t>(bytes), on.handle()),
                  "fill memory with zeros");
}

std::unique_ptr<Replay> DriverDevice::record(const std::function<void(Stream&)>& runs) {
  DriverStream stream(context_);  // the caller's stream may not support capture
  stream.begin_capture();
  runs(stream);
  return std::make_unique<DriverReplay>(context_, stream.end_capture(), stream.captured());
}

void DriverDevice::call(Stream& stream, const std::string& name, const std::function<void(void* native)>& put) {
  DriverStream& on = DriverStream::of(stream, *context_);
  const KeptContext kept(*context_);
  on.enqueued(name);
  on.takes_wait();
  put(on.handle());
}

int DriverDevice::count(const std::function<void(void* native)>& put) {
  DriverStream stream(context_);
  stream.begin_capture();
  const KeptContext kept(*context_);
  put(stream.handle());
  return stream.count_captured();
}

MatmulLibrary* DriverDevice::matmul_library() {
  const std::lock_guard lock(mutex_);
  if (matmul_library_) return matmul_library_->get();
  matmul_library_.emplace();
  SearchResult found = load_library(Library::CublasLt, search_, context_->api().version() / 1000);
  try {
    if (found.library)
      *matmul_library_ = std::make_unique<CublasLt>(
          *std::move(found.library), [context = context_] { return std::make_shared<KeptContext>(*context); });
    else
      spdlog::info("no cuBLASLt{}{}; products run on Tenon's own kernels", found.problem.empty() ? "" : ": ",
                   found.problem);
  } catch (const Error& e) {
    spdlog::warn("{}; products run on Tenon's own kernels", e.what());
  }
  return matmul_library_->get();
}

DnnLibrary* DriverDevice::dnn_library() {
  const std::lock_guard lock(mutex_);
  if (dnn_library_) return dnn_library_->get();
  dnn_library_.emplace();
  try {
    *dnn_library_ = std::make_unique<Cudnn>(std::make_shared<CudnnApi>(search_),
                                            [context = context_] { return std::make_shared<KeptContext>(*context); });
  } catch (const Error& e) {
    spdlog::info("{}; convolutions and attention run on Tenon's own kernels", e.what());
  }
  return dnn_library_->get();
}

TensorMap DriverDevice::encode(const TensorBox& box) const {
  TENON_CHECK(Internal, box.rank >= 1 && box.rank <= 5, "tensor map")
      << "expected a box of 1 to 5 dimensions, got " << box.rank;
  // Mostly, only whole elements move, and zero is zero in every type, so integers of the same size work; f32 is added.
  constexpr int kUint8 = 0, kUint16 = 1, kUint64 = 4, kFloat32 = 7;
  const int size = box.element_bytes;
  const int type = size == 8 ? kUint64 : size == 4 ? kFloat32 : size == 2 ? kUint16 : kUint8;
  const int swizzle = box.swizzle_bytes == 0 ? 0 : box.swizzle_bytes == 32 ? 1 : box.swizzle_bytes == 64 ? 2 : 3;
  constexpr int kNoInterleave = 0, kPromoteTo128Bytes = 2, kZeroOutside = 0;
  uint64_t extents[5] = {}, strides[5] = {};
  uint32_t sides[5] = {}, steps[5] = {};
  for (int i = 0; i < box.rank; ++i) {
    extents[i] = static_cast<uint64_t>(box.extent[i]);
    if (i > 0) strides[i - 1] = static_cast<uint64_t>(box.stride_bytes[i]);
    sides[i] = static_cast<uint32_t>(box.box[i]);
    steps[i] = 1;
  }
  TensorMap map;
  context_->check(
      context_->api().encode_tiled(&map, type, static_cast<uint32_t>(box.rank), box.address, extents, strides, sides,
                                   steps, kNoInterleave, swizzle, kPromoteTo128Bytes, kZeroOutside),
      "create a tensor map");
  return map;
}

}  // namespace tenon::cuda
