// The map skeleton: a tape over blocks of elements.
#include "tenon/backend/cpu/launches/tape_kernel.h"

namespace tenon::cpu {

const RegisterBody kRegisteredMap("map", &LaunchBodies::body<TapeKernel>);

}  // namespace tenon::cpu
