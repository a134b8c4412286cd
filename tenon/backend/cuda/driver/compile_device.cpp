#include "tenon/backend/cuda/driver/compile_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

const std::vector<DeviceFacts>& known_devices() {
  static const std::vector<DeviceFacts> devices = {
      {.name = "NVIDIA L4",
       .arch = "sm_89",
       .multiprocessors = 58,
       .shared_bytes = 99 * 1024,
       .memory_bytes = 22 * kGiB,
       .argument_bytes = kMaxArgumentBytes},
      {.name = "NVIDIA H200",
       .arch = "sm_90a",
       .multiprocessors = 132,
       .shared_bytes = 227 * 1024,
       .memory_bytes = 139 * kGiB,
       .argument_bytes = kMaxArgumentBytes},
  };
  return devices;
}

DeviceFacts facts_of(const std::string& arch) {
  std::string known;
  for (const DeviceFacts& facts : known_devices()) {
    if (facts.arch == arch) return facts;
    known += (known.empty() ? "" : ", ") + facts.arch;
  }
  throw Error(ErrorKind::Usage, "--arch", "no kernels for '" + arch + "'; expected one of " + known);
}

class NoReplay : public Replay {
 public:
  void run(Stream&) override {}
};

}  // namespace

class CompileDevice::Kernel : public Function {
 public:
  Kernel(KernelSource source, std::string key, PendingKernel pending)
      : source_(std::move(source)), key_(std::move(key)), pending_(std::move(pending)) {}

  void enqueue(Stream&, const CallShape& shape, std::span<const std::byte> params) override {
    const std::lock_guard lock(mutex_);
    ++calls_;
    threads_ = std::max(threads_, static_cast<int>(shape.threads));
    shared_bytes_ = std::max(shared_bytes_, static_cast<int>(shape.shared_bytes));
    parameter_sizes_.insert(static_cast<int>(params.size()));
  }
  KernelResources resources() override { return read_cubin_kernel(finished(pending_).cubin, kKernelName).resources(); }

  KernelReport report(const DeviceFacts& facts, const ExpectKernel& expect) const {
    KernelReport report{.name = source_.name, .key = key_, .error = {}, .kernel = {}, .log = {}, .violations = {}};
    try {
      const KernelBinary& compiled = finished(pending_);
      report.kernel = read_cubin_kernel(compiled.cubin, kKernelName);
      report.log = compiled.log;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Cancelled) throw;
      report.error = e.what();
      return report;
    }
    report.calls = calls_;
    KernelExpectations expected = expect ? expect(source_) : KernelExpectations{};
    expected.threads = std::max(expected.threads, threads_);
    report.violations = check_kernel(report.kernel, report.log, expected);
    report.shared_bytes = shared_bytes_ + report.kernel.static_shared_bytes;
    if (report.shared_bytes > facts.shared_bytes)
      report.violations.push_back("it is called with " + std::to_string(report.shared_bytes) +
                                  " bytes of shared memory; " + facts.name + " has " +
                                  std::to_string(facts.shared_bytes));
    for (int size : parameter_sizes_)
      if (size != report.kernel.argument_bytes)
        report.violations.push_back("it takes " + std::to_string(report.kernel.argument_bytes) +
                                    " bytes of arguments and is given " + std::to_string(size));
    return report;
  }

 private:
  KernelSource source_;
  std::string key_;
  PendingKernel pending_;
  std::mutex mutex_;
  int calls_ = 0, threads_ = 0, shared_bytes_ = 0;
  std::set<int> parameter_sizes_;
};

CompileDevice::CompileDevice(const std::string& arch, const CompileOptions& options)
    : facts_(facts_of(arch)),
      compiler_(arch, options.kernel_folder, options.search, std::numeric_limits<int>::max(), options.threads),
      cudnn_(options.cudnn ? std::make_unique<CudnnCheck>(options.search, facts_) : nullptr) {
  if (options.batch_invariant) facts_.chosen_samples = kChosenSamples;
  facts_.one_order = options.one_order;
}

CompileDevice::~CompileDevice() = default;

std::vector<std::string> CompileDevice::architectures() {
  std::vector<std::string> names;
  for (const DeviceFacts& facts : known_devices()) names.push_back(facts.arch);
  return names;
}

std::shared_ptr<Function> CompileDevice::load(const KernelSource& source) {
  const std::string key = compiler_.key(source);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Kernel>& kernel = by_key_[key];
  if (!kernel) {
    kernel = std::make_shared<Kernel>(source, key, compiler_.start(source));
    kernels_.push_back(kernel);
  }
  return kernel;
}

std::shared_ptr<void> CompileDevice::allocate(int64_t bytes) {
  TENON_CHECK(Memory, bytes <= memory_available(), facts_.name)
      << "cannot allocate " << bytes << " bytes; " << memory_available() << " bytes are free";
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* space = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENON_CHECK(Memory, space != MAP_FAILED, facts_.name) << "cannot reserve " << bytes << " bytes of address space";
  *allocated_ += static_cast<int64_t>(size);
  return {space, [size, allocated = allocated_](void* p) {
            munmap(p, size);
            *allocated -= static_cast<int64_t>(size);
          }};
}

std::shared_ptr<void> CompileDevice::allocate_pinned(int64_t bytes) {
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* space = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENON_CHECK(Memory, space != MAP_FAILED, facts_.name) << "cannot reserve " << bytes << " bytes of address space";
  return {space, [size](void* p) { munmap(p, size); }};
}

void CompileDevice::copy_out(Stream&, void* dst, const void*, int64_t bytes) {
  std::memset(dst, 0, static_cast<size_t>(bytes));
}

std::unique_ptr<Replay> CompileDevice::record(const std::function<void(Stream&)>& runs) {
  Stream none;
  runs(none);
  return std::make_unique<NoReplay>();
}

std::vector<KernelReport> CompileDevice::finish(const ExpectKernel& expect) {
  std::vector<KernelReport> reports;
  reports.reserve(kernels_.size());
  for (const auto& kernel : kernels_) reports.push_back(kernel->report(facts_, expect));
  return reports;
}

}  // namespace tenon::cuda
