// Several reductions in sequence over a resident row, then several outputs: norms, softmax, quantisation.
#include <algorithm>

#include "tenon/kernels/skeleton.h"

namespace tenon {

const RegisterSkeleton kRegisteredRows(
    {.name = "rows", .holes = {"load"}, .serves = anchored_by<>, .preference = 1, .legal = [](const Form& form) {
       const bool statistics = std::ranges::any_of(form.outputs, &FormOutput::statistic);
       return std::string(statistics ? "statistics over an image need the groups skeleton" : "");
     }});

}  // namespace tenon
