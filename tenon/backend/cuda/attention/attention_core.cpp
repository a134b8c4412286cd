#include "tenon/backend/cuda/attention/attention_core.h"

#include <algorithm>
#include <vector>

#include "tenon/backend/cuda/attention/attention_kernel.h"
#include "tenon/backend/cuda/products/core_names.h"
#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

std::vector<const AttentionCore*>& attention_cores() {
  static std::vector<const AttentionCore*> cores;
  return cores;
}

}  // namespace

void register_attention_core(const AttentionCore* core) {
  register_core_name(core->asked_as());
  const auto before = [](const AttentionCore* a, const AttentionCore* b) {
    return std::pair(a->preference(), a->name()) < std::pair(b->preference(), b->name());
  };
  std::vector<const AttentionCore*>& all = attention_cores();
  all.insert(std::upper_bound(all.begin(), all.end(), core, before), core);
}

TunedCall AttentionCore::call(AttentionKernel& kernel, const AttentionChoice& choice) const {
  return choice.box_keys ? kernel.box_call(choice) : kernel.rows_call(choice);
}

AttentionChoice choose_attention(const AttentionKernel& kernel) {
  for (const bool standing_in : {false, true})
    for (const AttentionCore* core : attention_cores()) {
      if (!(standing_in ? core->stands_in() : core_allowed(core->asked_as()))) continue;
      if (std::optional<AttentionChoice> choice = core->take(kernel)) {
        choice->core = core;
        return *choice;
      }
    }
  throw Error(ErrorKind::Internal, kernel.name(), "no attention core supports it");
}

}  // namespace tenon::cuda
