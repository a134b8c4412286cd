// The skeletons without an anchor: map, rows (both: one step) and groups (statistics only).
#include <array>

#include "tenon/backend/cuda/launch_kernel.h"

namespace tenon::cuda {
namespace {

class PlainKernel : public LaunchKernel {
 public:
  PlainKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : LaunchKernel(std::move(device), launch, std::move(form)) {
    reserve_statistics();
  }

 private:
  void make_steps() override {
    const std::vector<ProgramOutput> outputs = results();
    if (!outputs.empty() && form_.domain.numel() > 0) add(plain_step(device(), name(), outputs, form_.domain));
  }
};

const RegisterBody kRegistered[] = {{"map", &LaunchBodies::body<PlainKernel>},
                                    {"rows", &LaunchBodies::body<PlainKernel>},
                                    {"groups", &LaunchBodies::body<PlainKernel>}};

}  // namespace
}  // namespace tenon::cuda
