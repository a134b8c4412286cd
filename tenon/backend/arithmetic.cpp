#include "tenon/backend/arithmetic.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/expr/precision.h"
#include "tenon/kernels/form.h"

namespace tenon {

DType obeyed_arithmetic(const Launch& launch, std::span<const DType> multiplied) {
  const Expr& anchor = launch.form->anchor;
  const std::optional<DType> arithmetic = arithmetic_of(anchor);
  TENON_CHECK(Usage, arithmetic, launch.name) << anchor->name() << " has no arithmetic type";
  std::string known;
  for (const DType t : multiplied) known += (known.empty() ? "" : ", ") + std::string(name_of(t));
  TENON_CHECK(Usage, std::ranges::find(multiplied, *arithmetic) != multiplied.end(), launch.name)
      << anchor->name() << " multiplies in " << name_of(*arithmetic) << ", expected one of " << known;
  return *arithmetic;
}

}  // namespace tenon
