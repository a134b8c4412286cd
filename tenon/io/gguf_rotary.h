// Scaled rotary positions of GGUF files, as config.json states them.
#pragma once
#include <nlohmann/json.hpp>

#include "tenon/io/gguf.h"

namespace tenon {

/// The tensor of factors by which converters divide the speed of each pair in files of Llama 3.1 and later.
inline constexpr const char* kGgufRotaryFactors = "rope_freqs.weight";

/// What rope_scaling of config.json would say so that kGgufRotaryFactors were the file's; null if there are none, or
/// others than "llama3" gives.
nlohmann::json gguf_rotary_factors(const GgufFile& file);

/// What rope_scaling of config.json would say of the file's metadata and factors, for heads of `width` numbers; null:
/// positions are not scaled. Error(Model) names a key that is missing or changes the result in a way that config.json
/// cannot express, or factors that are not one for each pair of a head.
nlohmann::json gguf_rope_scaling(const GgufFile& file, int64_t width);

}  // namespace tenon
