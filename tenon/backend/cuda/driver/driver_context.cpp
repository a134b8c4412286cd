#include "tenon/backend/cuda/driver/driver_context.h"

#include <algorithm>
#include <array>

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

constexpr size_t kRecentCalls = 8;

// Errors after which the context accepts no more work: kernel and hardware faults.
bool unusable_after(DriverResult result) {
  constexpr std::array kFaults = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721};
  return std::find(kFaults.begin(), kFaults.end(), result) != kFaults.end();
}

std::string arch_of(int major, int minor) {
  if (major == 9 && minor == 0) return "sm_90a";
  if (major == 8 && minor == 9) return "sm_89";
  return {};
}

std::string unsupported(int major, int minor) {
  return "compute capability " + std::to_string(major) + "." + std::to_string(minor) +
         "; there are kernels for 8.9 (Ada: L4, RTX 40) and 9.0 (Hopper: H100, H200)";
}

}  // namespace

Availability look_at_gpu(const SearchSettings& settings) try {
  const DriverApi api(settings);
  int count = 0, device = 0, major = 0, minor = 0;
  char name[256] = {};
  const bool there = api.init(0) == kSuccess && api.device_count(&count) == kSuccess && count > 0 &&
                     api.device(&device, 0) == kSuccess && api.device_name(name, sizeof name - 1, device) == kSuccess &&
                     api.device_attribute(&major, DeviceAttribute::CapabilityMajor, device) == kSuccess &&
                     api.device_attribute(&minor, DeviceAttribute::CapabilityMinor, device) == kSuccess;
  if (!there) return {};
  if (arch_of(major, minor).empty()) return {name, "it has " + unsupported(major, minor)};
  if (!load_library(Library::Nvrtc, settings, api.version() / 1000).library)
    return {name, "kernels cannot be compiled without " + library_name(Library::Nvrtc) +
                      "; install it: " + install_command(Library::Nvrtc, settings, api.version() / 1000)};
  return {name, ""};
} catch (const Error&) {  // no driver, or an unusable one
  return {};
}

DriverContext::DriverContext(const SearchSettings& settings, int ordinal) : api_(settings) {
  const DriverResult started = api_.init(0);
  int count = 0;
  if (started == kSuccess) check(api_.device_count(&count), "count the GPUs");
  TENON_CHECK(Device, started == kSuccess || started == kNoDevice, "cuda")
      << "the driver (" << api_.path().string() << ") does not start: " << api_.describe(started);
  if (ordinal < 0 || ordinal >= count)
    throw Error(ErrorKind::Device, "cuda",
                count == 0 ? std::string("the driver reports no GPU")
                           : "no GPU " + std::to_string(ordinal) + "; the driver reports " + std::to_string(count),
                "CUDA_VISIBLE_DEVICES may hide GPUs; --device cpu needs none");
  read_facts(ordinal);
  check(api_.retain_context(&context_, device_), "open " + facts_.name);
  try {
    const KeptContext kept(*this);
    check(api_.create_stream(&stream_, kNonBlockingStream), "create a stream");
  } catch (...) {
    api_.release_context(device_);
    throw;
  }
}

void DriverContext::read_facts(int ordinal) {
  check(api_.device(&device_, ordinal), "open GPU " + std::to_string(ordinal));
  char name[256] = {};
  check(api_.device_name(name, sizeof name - 1, device_), "read the GPU's name");
  const auto attribute = [this](DeviceAttribute which) {
    int value = 0;
    check(api_.device_attribute(&value, which, device_), "read the GPU's properties");
    return value;
  };
  const int major = attribute(DeviceAttribute::CapabilityMajor), minor = attribute(DeviceAttribute::CapabilityMinor);
  size_t memory = 0;
  check(api_.device_memory(&memory, device_), "read the GPU's memory");
  facts_ = {.name = name,
            .arch = arch_of(major, minor),
            .multiprocessors = attribute(DeviceAttribute::Multiprocessors),
            .shared_bytes = attribute(DeviceAttribute::SharedBytesPerBlock),
            .memory_bytes = static_cast<int64_t>(memory)};
  if (facts_.arch.empty())
    throw Error(ErrorKind::Device, "cuda", facts_.name + " has " + unsupported(major, minor),
                "choose another GPU with CUDA_VISIBLE_DEVICES, or --device cpu");
}

DriverContext::~DriverContext() {
  {
    const KeptContext kept(*this, std::nothrow);
    api_.destroy_stream(stream_);
  }
  api_.release_context(device_);
}

void DriverContext::use() const {
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) throw Error(ErrorKind::Device, facts_.name, "is unusable after an earlier fault: " + broken_);
  }
  check(api_.set_context(context_), "select " + facts_.name);
}

void DriverContext::check(DriverResult result, const std::string& action) const {
  if (result == kSuccess) return;
  std::string what = "cannot " + action + ": " + api_.describe(result);
  if (result == kOutOfMemory) throw Error(ErrorKind::Memory, facts_.name, what);
  if (!unusable_after(result)) throw Error(ErrorKind::Device, facts_.name.empty() ? "cuda" : facts_.name, what);
  const std::lock_guard lock(mutex_);
  if (!recent_.empty()) {
    what += "; the fault is in one of the last kernel calls: ";
    for (size_t i = 0; i < recent_.size(); ++i) what += (i ? ", " : "") + ("'" + recent_[i].second + "'");
  }
  broken_ = what;
  throw Error(ErrorKind::Device, facts_.name, what, "CUDA_LAUNCH_BLOCKING=1 shows which kernel fails");
}

void DriverContext::enqueued(StreamHandle stream, const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  if (recent_.size() == kRecentCalls) recent_.erase(recent_.begin());
  recent_.emplace_back(stream, kernel);
}

void DriverContext::waited(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(recent_, [stream](const auto& call) { return call.first == stream; });
}

void DriverContext::clear(DeviceAddress memory, size_t bytes) {
  const KeptContext kept(*this);
  check(api_.fill(memory, 0, bytes, stream_), "fill memory with zeros");
  check(api_.synchronize(stream_), "fill memory with zeros");
}

}  // namespace tenon::cuda
