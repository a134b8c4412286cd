// Every instruction set; the best one with one thread and with two.
#include <algorithm>

#include "tests/planned/devices.h"
#include "tests/support/isa_backend.h"

namespace tenon::planned {
using cpu::Isa;

const std::vector<Device>& devices() {
  static const std::vector<Device> all = [] {
    std::vector<Device> out;
    const auto add = [&out](Isa isa, int threads) {
      const std::string name = cpu::tile_ops(isa)->name;
      out.push_back({threads == 1 ? name : name + ", two threads", std::make_shared<IsaBackend>(isa, threads)});
    };
    std::vector<Isa> isas = cpu::machine_isas();
    std::ranges::reverse(isas);
    for (const Isa isa : isas) {
      if (out.empty()) add(isa, 2);
      add(isa, 1);
    }
    return out;
  }();
  return all;
}

bool slow_devices() { return false; }

}  // namespace tenon::planned
