// The backends on which this test program runs executables: the CPU, or a GPU's kernels on an emulator.
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
  bool compiles = false;  ///< compiles every kernel, for about a second
  /// Number of phases that its device has recorded so far.
  std::function<int()> recordings = [] { return 0; };
};
/// New places, with nothing in them.
std::vector<Place> places();

}  // namespace tenon::places
