// The rows skeleton: one call in which a team of threads holds each row.
#include "tenon/backend/cuda/launches/plain_kernel.h"

namespace tenon::cuda {

const RegisterBody kRegisteredRows("rows", &LaunchBodies::body<PlainKernel>);

}  // namespace tenon::cuda
