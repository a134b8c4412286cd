// What the skeletons without an anchor ask of a form.
#pragma once
#include <algorithm>

#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"

namespace tenon {

/// True if a value contains a reduction over the last axis.
inline bool reduces_rows(const Form& form) {
  for (const FormOutput& o : form.outputs)
    for (const Expr& e : topological(std::array{o.value}))
      if (e->family() == Family::Reduce) return true;
  return false;
}

/// True if every output (or, with `all` false, any) is a statistic over the inner axes.
inline bool has_statistics(const Form& form, bool all) {
  const auto is = [](const FormOutput& o) { return o.statistic != nullptr; };
  return all ? std::all_of(form.outputs.begin(), form.outputs.end(), is)
             : std::any_of(form.outputs.begin(), form.outputs.end(), is);
}

}  // namespace tenon
