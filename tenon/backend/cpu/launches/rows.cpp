// The rows skeleton: a tape over whole rows.
#include "tenon/backend/cpu/launches/tape_kernel.h"

namespace tenon::cpu {

const RegisterBody kRegisteredRows("rows", &LaunchBodies::body<TapeKernel>);

}  // namespace tenon::cpu
