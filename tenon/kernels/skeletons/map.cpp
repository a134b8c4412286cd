// Elementwise maths and views over any shape: one read of every operand, one write of every result.
#include <algorithm>

#include "tenon/kernels/skeleton.h"

namespace tenon {

const RegisterSkeleton kRegisteredMap(
    {.name = "map", .holes = {"load"}, .serves = anchored_by<>, .legal = [](const Form& form) {
       const bool reduces = std::ranges::any_of(form.outputs, reduces_rows, &FormOutput::value);
       return reduces ? "a reduction needs its whole row resident" : skeleton("rows").legal(form);
     }});

}  // namespace tenon
