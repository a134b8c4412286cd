// The groups skeleton: statistics only.
#include "tenon/backend/cpu/launches/launch_kernel.h"

namespace tenon::cpu {
namespace {

class GroupsKernel : public LaunchKernel {
 public:
  GroupsKernel(std::shared_ptr<Engine> engine, const Launch& launch, Form form)
      : LaunchKernel(std::move(engine), launch, std::move(form)) {
    compile_statistics();
    seal();
  }
  std::string describe() const override { return std::string(engine_->vec.name) + " column moments"; }

 private:
  void compute(std::byte*) override {}
};

const RegisterBody kRegisteredGroups("groups", &LaunchBodies::body<GroupsKernel>);

}  // namespace
}  // namespace tenon::cpu
