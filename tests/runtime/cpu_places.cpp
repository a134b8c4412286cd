#include "tests/runtime/places.h"

namespace tenon::places {

std::vector<Place> places() { return {{"cpu", make_backend("cpu", {2})}}; }

}  // namespace tenon::places
