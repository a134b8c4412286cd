// The backend named "cuda": on a GPU through the driver, and what it needs from the machine; and its compiler.
#include <sstream>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/backend/cuda/driver/compile_device.h"
#include "tenon/backend/cuda/driver/driver_context.h"
#include "tenon/backend/cuda/driver/driver_device.h"
#include "tenon/backend/cuda/driver/libraries.h"
#include "tenon/backend/cuda/products/core_names.h"
#include "tenon/backend/cuda/products/tile_tuning.h"
#include "tenon/backend/offline_compiler.h"

namespace tenon::cuda {
namespace {

std::vector<BackendFact> probe() {
  std::vector<BackendFact> facts;
  for (const LibraryReport& report : report_libraries()) {
    const std::string found = (report.version.empty() ? "version unknown" : report.version) + ", " + report.path;
    const std::string missing = "not found" + (report.problem.empty() ? "" : ": " + report.problem);
    facts.push_back({report.name, report.found ? found : missing, report.hint});
  }
  facts.push_back({"kernels", KernelCache::default_folder().string(), ""});
  return facts;
}

int occurrences(const std::string& source, const std::string& of) {
  int n = 0;
  for (size_t at = source.find(of); at != std::string::npos; at = source.find(of, at + 1)) ++n;
  return n;
}

// The fraction of a source's loads that are 16-byte fragments. A line unrolled over a fragment counts once per element.
double wide_part(const std::string& source) {
  constexpr int kWidth = 8;
  int wide = 0, narrow = 0;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    for (const char* load : {"load<BF16, 8>(p.", "load<F16, 8>(p.", "load<float, 4>(p.", "load<float, 8>(p."})
      wide += occurrences(line, load);
    for (const char* load : {"load<float, 2>(p.", "load<F16, 4>(p.", "load<BF16, 4>(p."})
      narrow += occurrences(line, load);
    const int times = line.find("UNROLL") != std::string::npos ? kWidth : 1;
    for (const char* load : {"to_float(p.", " = p.in"}) narrow += occurrences(line, load) * times;  // values, places
  }
  return wide ? static_cast<double>(wide) / (wide + narrow) : 0;
}

// Tensor-core kernels must contain their instructions and copy 16 bytes at a time; in other kernels, most loads that
// are one fragment in the source must be one instruction.
KernelExpectations expect(const KernelSource& source) {
  KernelExpectations e;
  const std::string& t = source.code;
  const auto has = [&t](const char* what) { return t.find(what) != std::string::npos; };
  const bool e4m3 = source.name.find(" e4m3 ") != std::string::npos;  // the unit, after the layer
  const bool f32 = source.name.find(" f32 ") != std::string::npos;
  if (has("_mma<") && f32) e.contains = {Opcode::CopyAsync}, e.lacks = {Opcode::Hmma};
  if (has("_mma<") && !f32) e.contains = {e4m3 ? Opcode::Qmma : Opcode::Hmma, Opcode::CopyAsync};
  if (has("_wgmma<")) e.contains = {e4m3 ? Opcode::Qgmma : Opcode::Hgmma, Opcode::TensorLoad};
  e.may_use_stack = has("nodes/trigonometric.h");  // argument reduction for large arguments needs a table
  const bool plain =
      has("tenon/backend/cuda/device/launches/map.h") || has("tenon/backend/cuda/device/launches/rows.h");
  if (plain && !e.may_use_stack) e.wide_loads = 0.5 * wide_part(t);
  return e;
}

// Reports invalid values immediately, even without a GPU.
void check_settings() {
  static_cast<void>(asked_core());
  static_cast<void>(asked_to_tune());
}

std::unique_ptr<Backend> make(const BackendOptions& options) {
  check_settings();
  DriverOptions driver;
  driver.ordinal = options.ordinal;
  driver.batch_invariant = options.batch_invariant;
  driver.one_order = options.one_order;
  return make_cuda_backend(std::make_shared<DriverDevice>(driver));
}

class CudaCompiler : public OfflineCompiler {
 public:
  CudaCompiler(const std::string& architecture, const CompileOptions& options)
      : device_(std::make_shared<CompileDevice>(architecture, options)), backend_(make_cuda_backend(device_)) {}

  std::shared_ptr<Backend> backend() const override { return backend_; }

  std::vector<CompiledKernel> compiled() override {
    std::vector<CompiledKernel> out;
    for (const KernelReport& r : device_->finish(expect)) {
      CompiledKernel k{r.name,  r.kernel.registers, r.kernel.stack_bytes, r.kernel.static_shared_bytes,
                       r.calls, r.violations};
      if (!r.error.empty()) k.problems.push_back(r.error);
      out.push_back(std::move(k));
    }
    return out;
  }

  PlannedCalls planned() override { return device_->cudnn() ? device_->cudnn()->planned() : PlannedCalls(); }

 private:
  std::shared_ptr<CompileDevice> device_;
  std::shared_ptr<Backend> backend_;
};

std::unique_ptr<OfflineCompiler> make_compiler(const OfflineOptions& options) {
  check_settings();
  CompileOptions compile;
  compile.threads = options.backend.threads;
  compile.cudnn = options.plan_libraries;
  compile.batch_invariant = options.backend.batch_invariant;
  compile.one_order = options.backend.one_order;
  return std::make_unique<CudaCompiler>(options.architecture, compile);
}

const RegisterBackend kRegisteredCuda("cuda", &make, probe, {.preference = 2, .look = [] {
                                                               return look_at_gpu(SearchSettings::from_environment());
                                                             }});
const RegisterOfflineCompiler kRegisteredCompiler("cuda", &make_compiler);

}  // namespace
}  // namespace tenon::cuda
