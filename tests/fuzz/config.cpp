// The first byte chooses a network, the rest is its config.json: either an Error(Model), or a network whose weights can
// be listed.
#include "tenon/io/json.h"
#include "tenon/models/clip_text.h"
#include "tenon/models/unet.h"
#include "tenon/models/vae.h"
#include "tests/fuzz/fuzz_tools.h"

namespace {
using namespace tenon;

// Small enough that the graph is built instantly.
bool is_small(const UNetConfig& c) { return c.levels.size() <= 3 && c.layers_per_block <= 2; }
bool is_small(const VaeConfig& c) { return c.channels.size() <= 3 && c.layers_per_block <= 2; }
bool is_small(const ClipTextConfig& c) { return c.layers <= 3; }

template <class Config, class Weights>
void use(const Config& config, const Weights& weights) {
  if (!is_small(config)) return;
  // Sizes beyond all memory are refused by the memory plan.
  fuzz::refuses_only({ErrorKind::Memory}, [&] {
    if (weights(config).empty()) std::abort();
  });
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  fuzz::refuses_only({ErrorKind::Model}, [&] {
    const nlohmann::json config = parse_json(text, "config.json");
    if (data[0] % 3 == 0) use(unet_config(config, "config.json"), unet_weights);
    if (data[0] % 3 == 1) use(vae_config(config, "config.json"), vae_weights);
    if (data[0] % 3 == 2) use(clip_text_config(config, "config.json"), clip_text_weights);
  });
  return 0;
}
