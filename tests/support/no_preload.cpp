// What a test program starts runs without the sanitizer that may have been loaded into the program itself.
#include <cstdlib>

namespace {
[[maybe_unused]] const int kRemoved = unsetenv("LD_PRELOAD");
}  // namespace
