#include "tenon/backend/cuda/codegen/statistics_source.h"

#include <set>

#include "tenon/backend/cuda/codegen/program_source.h"

namespace tenon::cuda {

std::string statistics_source(const std::string& name, std::span<const Statistic> wanted, Params& params,
                              std::string& headers) {
  std::string stores;
  std::set<std::string> needed;
  for (const Statistic& s : wanted) {
    const NodeStruct& node = node_struct(s.kind);
    needed.insert(node.header);
    stores += "    " + params.pointer(s.place, true) + "[at] = nodes::" + node.name +
              "::of_moments<float>(m.count, m.mean, m.m2);\n";
  }
  for (const std::string& header : needed) headers += "#include \"" + header + "\"\n";
  return "  DEV static void " + name + "(const Params& p, int64_t at, const Moments& m) {\n" + stores + "  }\n";
}

}  // namespace tenon::cuda
