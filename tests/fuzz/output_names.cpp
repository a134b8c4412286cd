// The first byte is a number of pictures, the rest a value of --output: either an Error(Usage), or that many different
// names of PNG or JPEG files.
#include "apps/cli/output_names.h"

#include <set>

#include "tenon/io/image.h"
#include "tests/fuzz/fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  if (size == 0) return 0;
  const std::string spec(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int count = 1 + data[0] % 12, begin = data[0] * 37;
  if (spec.find('\0') != spec.npos) return 0;  // arguments cannot contain one
  fuzz::refuses_only({ErrorKind::Usage}, [&] {
    std::set<std::filesystem::path> names;
    for (const auto& name : cli::output_names("--output", spec, count, begin)) {
      if (name.extension().string().size() != 4 && !has_jpeg_name(name)) std::abort();
      names.insert(name);
    }
    if (names.size() != static_cast<size_t>(count)) std::abort();
  });
  return 0;
}
