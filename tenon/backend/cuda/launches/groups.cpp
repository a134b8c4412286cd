// The groups skeleton: statistics only.
#include "tenon/backend/cuda/launches/plain_kernel.h"

namespace tenon::cuda {

const RegisterBody kRegisteredGroups("groups", &LaunchBodies::body<PlainKernel>);

}  // namespace tenon::cuda
