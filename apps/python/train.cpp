// Training problems for Python.
#include "apps/python/gil.h"
#include "tenon/core/error.h"
#include "tenon/train/sums.h"

namespace tenon::python {
namespace {

std::vector<std::pair<std::string, std::string>> sums(uint64_t seed, int64_t first, int64_t count,
                                                      const std::string& split) {
  TENON_CHECK(Usage, count >= 0, "count") << count << " is negative";
  const SumsSplit part = parse_sums_split(split);
  const GilReleased released;
  std::vector<std::pair<std::string, std::string>> out;
  for (int64_t i = 0; i < count; ++i) {
    Problem p = sums_problem(seed, first + i, part);
    out.emplace_back(std::move(p.prompt), std::move(p.answer));
  }
  return out;
}

}  // namespace

void bind_train(nb::module_& m) {
  m.def("sums", &sums, nb::arg("seed"), nb::arg("first"), nb::arg("count"), nb::arg("split"));
}

}  // namespace tenon::python
