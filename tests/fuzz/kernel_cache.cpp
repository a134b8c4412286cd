// Any bytes as an entry of the kernel cache, unchanged and with a valid digest.
#include "tenon/backend/cuda/driver/kernel_cache.h"

#include "tests/fuzz/fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon::cuda;
  const std::string key = "key", bytes(reinterpret_cast<const char*>(data), size);
  decode_entry(key, bytes);
  // Stored contents are returned, and nothing else is accepted in their place.
  const size_t cut = size ? data[0] % size : 0;
  const auto* binary = reinterpret_cast<const std::byte*>(data);
  const KernelBinary kernel{{binary, binary + cut}, bytes.substr(cut)};
  const std::string entry = encode_entry(key, kernel);
  const auto back = decode_entry(key, entry);
  if (!back || back->cubin != kernel.cubin || back->log != kernel.log) std::abort();
  if (decode_entry("other", entry)) std::abort();
  for (size_t i = 0; i < entry.size(); i += 1 + entry.size() / 16) {
    std::string damaged = entry;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    if (decode_entry(key, damaged) || decode_entry(key, entry.substr(0, i))) std::abort();
  }
  return 0;
}
