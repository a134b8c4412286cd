// Every instruction set, with one thread and with three.
#include "tests/optim/backends.h"
#include "tests/support/isa_backend.h"

namespace tenon::optim {
using cpu::Isa;

const std::vector<Ground>& grounds() {
  static const std::vector<Ground> all = [] {
    std::vector<Ground> out;
    for (const Isa isa : cpu::machine_isas())
      for (const int threads : {1, 3})
        out.push_back({std::string(cpu::tile_ops(isa)->name) + ", threads " + std::to_string(threads),
                       std::make_shared<IsaBackend>(isa, threads)});
    return out;
  }();
  return all;
}

}  // namespace tenon::optim
