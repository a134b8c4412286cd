#include "tenon/models/weight_names.h"

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {

bool WeightNames::has_prefix(const std::string& prefix) const {
  const auto it = weights_.lower_bound(prefix);
  return it != weights_.end() && it->first.starts_with(prefix);
}

Shape WeightNames::shape(const std::string& name, int rank) const {
  const auto it = weights_.find(name);
  TENON_CHECK(Model, it != weights_.end(), where_)
      << "not " << kind_ << " of a supported kind: no tensor '" << name << "'";
  TENON_CHECK(Model, it->second.rank() == rank, where_)
      << "tensor '" << name << "': expected rank " << rank << ", found shape " << it->second.str();
  return it->second;
}

int64_t WeightNames::count(const std::string& prefix, const std::string& suffix) const {
  const auto nth = [&](int64_t i) { return prefix + std::to_string(i) + suffix; };
  int64_t n = 0;
  while (has(nth(n))) ++n;
  TENON_CHECK(Model, n > 0, where_) << "not " << kind_ << " of a supported kind: no tensor '" << prefix << "0" << suffix
                                    << "'";
  return n;
}

void WeightNames::refuse_if(bool condition, const std::string& name, const std::string& found) const {
  if (!condition) return;
  throw Error(ErrorKind::Model, where_,
              "not " + kind_ + " of a supported kind: tensor '" + shown(name) + "' shows " + found);
}

}  // namespace tenon
