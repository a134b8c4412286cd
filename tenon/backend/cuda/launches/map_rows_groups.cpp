// The skeletons without an anchor: map, rows (each one kernel call) and groups (statistics only).
#include <algorithm>

#include "tenon/backend/cuda/launches/launch_kernel.h"

namespace tenon::cuda {
namespace {

class RowsKernel : public LaunchKernel {
 public:
  RowsKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : LaunchKernel(std::move(device), launch, std::move(form)) {
    reserve_statistics();
  }

 private:
  std::vector<ProgramOutput> beside_maps() const override {
    const std::vector<ProgramOutput> outputs = results();
    const bool reduces =
        std::any_of(outputs.begin(), outputs.end(), [](const ProgramOutput& o) { return reduces_rows(o.value); });
    return reduces ? outputs : std::vector<ProgramOutput>{};
  }
  int own_calls() const override { return !results().empty() && form_.domain.numel() > 0 ? 1 : 0; }

  void make_calls() override {
    const std::vector<ProgramOutput> outputs = results();
    if (!outputs.empty() && form_.domain.numel() > 0) add_values(name(), outputs, form_.domain);
  }
};

const RegisterBody kRegisteredRows[] = {{"map", &LaunchBodies::body<RowsKernel>},
                                        {"rows", &LaunchBodies::body<RowsKernel>},
                                        {"groups", &LaunchBodies::body<RowsKernel>}};

}  // namespace
}  // namespace tenon::cuda
