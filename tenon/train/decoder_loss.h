// Losses of decoder language models with their gradients.
//
// Inputs are "tokens" and "target", i32 [rows, tokens]: the target is the next token, or -1 where nothing is learnt (in
// prompts and after a sequence's end). If the configuration has an adapter, only its weights get gradients.
#pragma once
#include "tenon/backend/backend.h"
#include "tenon/models/decoder.h"
#include "tenon/nn/policy_loss.h"
#include "tenon/train/shared_tokens.h"

namespace tenon::train {

struct BatchShape {
  int64_t rows = 1, tokens = 1;
  int64_t chunk = 0;  ///< rows of logits in memory at a time; 0: equal parts, each of at most 512 rows or logit_bytes,
                      ///< the larger
  int64_t logit_bytes = int64_t{32} << 20;
};

/// Value of BatchShape::logit_bytes for a backend, given the limit on a step's arena (0: none). The gradient of the
/// head's weights is read and written once per part, which is slow on a device that records launches.
int64_t logit_bytes(const Backend& backend, int64_t arena_bytes = 0);

/// The mean cross entropy over all targets.
Differentiated decoder_cross_entropy(Graph& g, const DecoderConfig& c, const BatchShape& shape, nn::Precision p);

struct PolicyObjective {
  nn::PolicyLoss kind = nn::PolicyLoss::DrGrpo;
  nn::PolicyOptions terms;
  double longest = 1;  ///< DrGrpo's constant
};
/// A policy-gradient loss over completions, which are the targets. Further inputs: "old" f32 [rows, tokens], each
/// target's log-probability when it was drawn; "advantage" f32 [rows, 1]; "reference" f32 [rows, tokens] if beta is not
/// 0; the scalar "tokens_of_update" for Dapo. Result "nll": -log-probability of each target, [rows * tokens].
///
/// With a SharedShape the inputs are those of SharedTokens::give, and "nll" is [targets].
Differentiated decoder_policy_loss(Graph& g, const DecoderConfig& c, const BatchShape& shape,
                                   const PolicyObjective& objective, nn::Precision p, const SharedShape& shared = {});

/// A plan with the single result "nll", for a reference model. Inputs as above.
Plan plan_log_probabilities(const DecoderConfig& c, const BatchShape& shape, nn::Precision p, const Target& target);

}  // namespace tenon::train
