// The CUDA backend's launches on the emulator, and on a GPU if there is one.
#include "tests/cuda/emulated_runner.h"

#include <cstdlib>

#include "tenon/backend/cuda/driver/driver_device.h"
#include "tenon/backend/cuda/launches/launch_kernel.h"
#include "tests/cuda/emulator.h"

namespace tenon::launches {

Tensors run_on(const std::shared_ptr<cuda::Device>& device, const Launch& l, const Tensors& tensors,
               std::string* calls) {
  const std::unique_ptr<cuda::LaunchKernel> kernel = cuda::LaunchBodies::make(device, l);
  const std::shared_ptr<Stream> stream = device->make_stream();
  std::map<std::string, std::shared_ptr<void>> buffers;
  const auto allocate = [&](int64_t bytes) {
    const std::vector<std::byte> poison(static_cast<size_t>(bytes), std::byte{0xff});
    std::shared_ptr<void> memory = device->allocate(bytes);
    device->copy_in(*stream, memory.get(), poison.data(), bytes);
    return memory;
  };
  Tensors out;
  for (const Expr& e : operands_of(l)) {
    if (e.is<nodes::Param>()) continue;
    const HostTensor& t = tensors.at(e->attrs.text);
    std::shared_ptr<void>& memory = buffers[e->attrs.text];
    memory = allocate(static_cast<int64_t>(t.data.size()));
    device->copy_in(*stream, memory.get(), t.data.data(), static_cast<int64_t>(t.data.size()));
  }
  for (const Output& o : l.outputs) {
    out.emplace(o.buffer, HostTensor::zeros(o.value.dtype(), o.value.shape()));
    if (!buffers.contains(o.buffer)) buffers[o.buffer] = allocate(bytes_of(o.value.shape(), o.value.dtype()));
  }
  const auto weights = weights_of(*kernel, *stream, tensors, [&](int64_t bytes) { return device->allocate(bytes); });
  const std::shared_ptr<void> kept = device->allocate(kernel->memory().kept);
  kernel->bind([&](const std::string& name) { return buffers.at(name).get(); }, addresses_of(weights), kept.get());
  const std::shared_ptr<void> scratch = allocate(kernel->memory().scratch);
  kernel->run(*stream, scratch.get());
  if (calls) {
    *calls = kernel->describe();
    kernel->run(*stream, scratch.get());  // counters and results are as before
  }
  for (auto& [name, t] : out)
    device->copy_out(*stream, t.data.data(), buffers.at(name).get(), static_cast<int64_t>(t.data.size()));
  return out;
}

const std::vector<Runner>& runners() {
  static const std::vector<Runner> all = [] {
    std::vector<Runner> out;
    const auto add = [&out](const std::string& name, const std::shared_ptr<cuda::Device>& device) {
      out.push_back({name, name, [device](const Launch& l, const Tensors& t) { return run_on(device, l, t); }});
    };
    const bool gpu_only = std::getenv("TENON_TEST_GPU_ONLY") != nullptr;
    if (!gpu_only) add("emulator", std::make_shared<cuda::test::Emulator>());
    try {
      const auto gpu = std::make_shared<cuda::DriverDevice>();
      add(gpu->facts().name, gpu);
      add(gpu->facts().name, gpu);  // twice: must be bit-identical
    } catch (const Error&) {
      if (gpu_only) throw;  // without any runner every test would pass
    }
    return out;
  }();
  return all;
}

}  // namespace tenon::launches
