// The backends of this test program: every instruction set of the machine, or a GPU's kernels on an emulator.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"

namespace tenon::optim {

struct Ground {
  std::string name;
  std::shared_ptr<Backend> backend;
};
const std::vector<Ground>& grounds();

}  // namespace tenon::optim
