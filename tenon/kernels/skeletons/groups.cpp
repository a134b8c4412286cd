// Statistics (means, variances, ..) over the inner axes, per sample and channel, if no producer can supply them.
#include <algorithm>

#include "tenon/kernels/skeleton.h"

namespace tenon {

const RegisterSkeleton kRegisteredGroups(
    {.name = "groups", .holes = {"load"}, .serves = anchored_by<>, .preference = 2, .legal = [](const Form& form) {
       const bool all = std::ranges::all_of(form.outputs, &FormOutput::statistic);
       return std::string(all ? "" : "supports only statistics over the inner axes");
     }});

}  // namespace tenon
