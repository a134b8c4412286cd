// Any bytes as an untrusted name: its form in messages is safe for a terminal, and no rule about tensor names fails on
// it.
#include "tenon/core/text.h"
#include "tenon/core/utf8.h"
#include "tenon/io/json.h"
#include "tenon/models/stable_diffusion_names.h"
#include "tenon/models/vit.h"
#include "tests/fuzz/fuzz_tools.h"

namespace {
using namespace tenon;

void check_shown(const std::string& text) {
  if (first_invalid_utf8(text)) std::abort();
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    const bool turns = c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
                       (c >= 0x2066 && c <= 0x2069) || c == 0x2028 || c == 0x2029;
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || turns) std::abort();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string name(reinterpret_cast<const char*>(data), size);
  check_shown(escaped(name));
  if (escaped(escaped(name)) != escaped(name)) std::abort();
  for (const size_t most : {size_t{8}, size_t{40}, kShownBytes}) {
    const std::string text = shown(name, most);
    check_shown(text);
    if (text.size() > most) std::abort();
  }
  if (first_invalid_utf8(as_utf8(name))) std::abort();
  const Error error(ErrorKind::Model, name, "found " + name, name);
  check_shown(error.what());
  if (std::string_view(error.what()).size() > kMessageBytes) std::abort();
  if (nlohmann::json::parse(json_text({{name, name}})).empty()) std::abort();
  unet_name_from_ldm(name);
  for (const int levels : {1, 4}) vae_name_from_ldm(name, levels);
  vae_name_from_old(name);
  text_name_with_prefix(name);
  vit_name(name);
  return 0;
}
