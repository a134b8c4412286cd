// One run of a loop that generates text without leaving the device: each row's last token goes through the network and
// a token is sampled from its scores. Everything that the next run reads is a state.
#pragma once
#include "tenon/models/decoder.h"

namespace tenon {

struct DecodeStepShape {
  int64_t rows = 1;             ///< texts decoded side by side
  int64_t capacity = 1024;      ///< most tokens that the cache holds per row
  int64_t page = 0, pages = 0;  ///< as in DecoderShape; with pages, "pages" i32 [rows, capacity / page] is an input
  int64_t stops = 0;            ///< number of tokens that end a text
  bool penalises = false;       ///< scores of tokens that have already occurred are penalised
  /// Log-probabilities are those of the network, over all tokens at temperature 1, bit-identical to those that training
  /// computes. Otherwise those of the distribution that was sampled from.
  bool of_network = false;
};

/// Most rows of a step, such that indices into its caches and scores are exact in f32.
int64_t max_decode_rows(const DecoderConfig& config, int64_t capacity);

/// Inputs and states, all of them in `g`, which the host sets:
///
///   states   token, position i32 [rows]  a token that is not in the cache yet, and how many tokens are
///            going i32 [rows]            1 if the row continues, else 0
///            seen u8 [rows * V]          if `penalises`: 1 for a token that has occurred; a run adds its own
///   inputs   limit i32 [rows]            the position at which a row ends
///            rule f32 [rows, 4], seed i32 [rows, 4]  as in nodes::Sample
///            draws i32 [rows]            added to a position, gives the number of the draw
///            stops i32 [rows, stops]     -1: none
///            penalty f32 [rows]          if `penalises`: as in nn::penalised
///
/// For a row that continues, a run puts the sampled token into `token`, and the token and its log-probability into the
/// states text i32 and log_probability f32, at the preceding token's index in the caches (row * capacity + position, or
/// with pages its place in a page). It increments `position`, and sets `going` to 0 after a stop token or at the limit.
/// A row that is not going, or whose scores are not finite (log-probability NaN), keeps its token and position; what it
/// writes must not be read.
std::vector<std::pair<std::string, Expr>> decode_step(Graph& g, const DecoderConfig& c, const DecodeStepShape& shape,
                                                      nn::Precision p);

}  // namespace tenon
