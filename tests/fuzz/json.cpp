// Any bytes as JSON: either an Error(Model), or the result of the library's own parser.
#include "tenon/io/json.h"
#include "tests/fuzz/fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  nlohmann::json ours;
  const bool good = fuzz::refuses_only({ErrorKind::Model}, [&] { ours = parse_json(text, "fuzz"); });
  const auto theirs = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (good && ours != theirs) std::abort();
  if (!good) return 0;
  if (shown_json(ours).size() > 500) std::abort();
  if (nlohmann::json::parse(json_text(ours)) != ours) std::abort();
  return 0;
}
