// Where this test program runs executables: the processor, or a GPU's kernels on an emulator.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"

namespace tenon::places {

struct Place {
  std::string name;
  std::shared_ptr<Backend> backend;
  bool compiles = false;  ///< every kernel, for about a second
  /// Phases that its device has recorded so far.
  std::function<int()> recordings = [] { return 0; };
};
/// Places made anew, with nothing in them.
std::vector<Place> places();

}  // namespace tenon::places
