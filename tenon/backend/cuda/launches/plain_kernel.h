// What the skeletons without an anchor share: map, rows (each one kernel call) and groups (statistics only).
#pragma once
#include <algorithm>

#include "tenon/backend/cuda/launches/launch_kernel.h"

namespace tenon::cuda {

class PlainKernel : public LaunchKernel {
 public:
  PlainKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : LaunchKernel(std::move(device), launch, std::move(form)) {
    reserve_statistics();
  }

 private:
  std::vector<ProgramOutput> beside_maps() const override {
    std::vector<ProgramOutput> outputs = results();
    const bool reduces = std::ranges::any_of(outputs, [](const ProgramOutput& o) { return reduces_rows(o.value); });
    return reduces ? outputs : std::vector<ProgramOutput>{};
  }
  int own_calls() const override { return !results().empty() && form_.domain.numel() > 0 ? 1 : 0; }
  void make_calls() override {
    if (own_calls()) add_values(name(), results(), form_.domain);
  }
};

}  // namespace tenon::cuda
