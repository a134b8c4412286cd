// Plans of a language model's network.
#pragma once
#include "tenon/models/decoder.h"
#include "tenon/pipelines/networks.h"

namespace tenon {

/// Precision of a language model's linear layers. Error(Usage) for e4m3 rows, except for layers by name.
PrecisionPolicy decoder_precision(const NetworkOptions& options);
/// How its plans are made. Channel scales are not folded into a file's i8 blocks, which would then be rounded a second
/// time.
PlanOptions decoder_options(const std::string& name, const NetworkOptions& options);
/// Its element types: weights that become i8 blocks are rounded once, from the file's values.
nn::Precision decoder_types(const NetworkOptions& options);

/// The plan that puts tokens into the cache: the network of decoder() without its logits.
Plan plan_prompt(const DecoderConfig& c, const DecoderShape& shape, nn::Precision p, const PlanOptions& options);

/// The plan of the network of decoder(), with its caches as states and its logits as "logits".
Plan plan_decoder(const DecoderConfig& c, const DecoderShape& shape, const NetworkOptions& options);

}  // namespace tenon
