// Completions sampled from the policy: rows of one batch, over a cache of keys and values, with the weights that
// training changes.
//
// Tokens are sampled from softmax(logits) at temperature 1, without filtering or penalties, so that their
// log-probabilities are those of the trained policy.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tenon/models/decoder.h"
#include "tenon/pipelines/decode_loop.h"

namespace tenon::train {

struct Completion {
  std::vector<int32_t> tokens;            ///< including the stop token, if one ended it
  std::vector<double> log_probabilities;  ///< per token; in f32 the bits that training computes before an update
  bool ended = false;                     ///< by a stop token; otherwise the limit was reached
};

struct RolloutOptions {
  int64_t most = 256;  ///< longest completion
  bool greedy = false;
  std::vector<int32_t> stop_ids;  ///< the first of any of these ends a completion
};

class Rollout {
 public:
  /// Over a store whose weights may be updated between calls.
  Rollout(std::shared_ptr<WeightStore> store, DecoderConfig config, nn::Precision precision);

  /// Cache room per row, in tokens, for prompts up to `longest` and completions up to `most`.
  static int64_t capacity(int64_t longest, int64_t most);

  /// A completion for each prompt. `seeds`: one per row, ignored if greedy. Equal prompts, seeds, weights and numbers
  /// of rows give equal completions. Asks check_stop() every few tokens. Error(Usage): a prompt without tokens, or too
  /// long for the model. Error(Numeric).
  std::vector<Completion> complete(const std::vector<std::vector<int32_t>>& prompts, const std::vector<uint64_t>& seeds,
                                   const RolloutOptions& options);

 private:
  void reserve(int64_t rows, int64_t capacity, int64_t stops);
  void read(const std::vector<std::vector<int32_t>>& prompts, int64_t width);

  std::shared_ptr<WeightStore> store_;
  DecoderConfig config_;
  nn::Precision precision_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Arena> arena_;  // of the plans for prompts
  std::shared_ptr<Buffers> states_;
  int64_t rows_ = 0, capacity_ = 0, stops_ = 0;  // of loop_; rows_: 0 if there is none
  std::map<int64_t, Executable> prompts_;        // by number of tokens in a prompt
  std::unique_ptr<DecodeLoop> loop_;
};

}  // namespace tenon::train
