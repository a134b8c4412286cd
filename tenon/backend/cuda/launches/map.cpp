// The map skeleton: one call that computes fragments of its results.
#include "tenon/backend/cuda/launches/plain_kernel.h"

namespace tenon::cuda {

const RegisterBody kRegisteredMap("map", &LaunchBodies::body<PlainKernel>);

}  // namespace tenon::cuda
