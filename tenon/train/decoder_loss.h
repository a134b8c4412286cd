// Losses of decoder language models, differentiated.
//
// Inputs are "tokens" and "target", i32 [rows, tokens]: target is the token that follows, or -1 where nothing is to be
// learnt, in prompts and behind a sequence's end. With an adapter in the configuration, there are gradients of its
// weights alone.
#pragma once
#include "tenon/backend/backend.h"
#include "tenon/models/decoder.h"
#include "tenon/nn/policy_loss.h"
#include "tenon/train/shared_tokens.h"

namespace tenon::train {

struct BatchShape {
  int64_t rows = 1, tokens = 1;
  int64_t chunk = 0;  ///< rows of logits that exist at a time; 0: equal parts, of 512 rows or of logit_bytes at most
  int64_t logit_bytes = int64_t{32} << 20;
};

/// What BatchShape::logit_bytes is on a backend, within a limit on a step's values (0: none). The gradient of the
/// head's weights is read and written once for each part of the rows, which takes long on a device that records
/// launches.
int64_t logit_bytes(const Backend& backend, int64_t arena_bytes = 0);

/// The mean cross entropy of all targets.
Differentiated decoder_cross_entropy(Graph& g, const DecoderConfig& c, const BatchShape& shape, nn::Precision p);

struct PolicyObjective {
  nn::PolicyLoss kind = nn::PolicyLoss::DrGrpo;
  nn::PolicyOptions terms;
  double longest = 1;  ///< DrGrpo's constant
};
/// A policy gradient's loss over completions, the targets. More inputs: "old" f32 [rows, tokens], each target's log
/// probability when it was drawn; "advantage" f32 [rows, 1]; with a beta "reference" f32 [rows, tokens]; for Dapo the
/// number "tokens_of_update". Result "nll": -log-probability of each target, [rows * tokens].
///
/// With a shape of shared tokens inputs are those of SharedTokens::give, and "nll" is [targets].
Differentiated decoder_policy_loss(Graph& g, const DecoderConfig& c, const BatchShape& shape,
                                   const PolicyObjective& objective, nn::Precision p, const SharedShape& shared = {});

/// A plan with the one result "nll", for a reference model. Inputs as above.
Plan plan_log_probabilities(const DecoderConfig& c, const BatchShape& shape, nn::Precision p, const Target& target);

}  // namespace tenon::train
