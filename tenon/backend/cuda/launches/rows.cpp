// The rows skeleton: one call in which a team of threads holds each row.
#include <algorithm>

#include "tenon/backend/cuda/launches/plain_kernel.h"

namespace tenon::cuda {
namespace {

class RowsKernel : public PlainKernel {
 public:
  using PlainKernel::PlainKernel;

 private:
  std::vector<ProgramOutput> beside_maps() const override {
    std::vector<ProgramOutput> outputs = results();
    const bool reduces =
        std::any_of(outputs.begin(), outputs.end(), [](const ProgramOutput& o) { return reduces_rows(o.value); });
    return reduces ? outputs : std::vector<ProgramOutput>{};
  }
};

const RegisterBody kRegisteredRows("rows", &LaunchBodies::body<RowsKernel>);

}  // namespace
}  // namespace tenon::cuda
