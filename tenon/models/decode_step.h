// One run of a loop that writes texts and never leaves the device: each row's last token goes through the network, a
// token is drawn from its scores, and all that the next run reads is a state.
#pragma once
#include "tenon/models/decoder.h"

namespace tenon {

struct DecodeStepShape {
  int64_t rows = 1;             ///< texts side by side
  int64_t capacity = 1024;      ///< tokens that the cache holds of a row, at most
  int64_t page = 0, pages = 0;  ///< as DecoderShape; in pages, "pages" i32 [rows, capacity / page] is an input too
  int64_t stops = 0;            ///< tokens that end a text
  bool penalises = false;       ///< tokens that have been there have other scores
  /// Log-probabilities are the network's, of all tokens at temperature 1, with the bits that training computes. Else
  /// they are of what was drawn from.
  bool of_network = false;
};

/// Rows that a step may have at most: the numbers of places in its caches, and of its scores, are exact in f32.
int64_t most_decode_rows(const DecoderConfig& config, int64_t capacity);

/// What the host gives, all of it in `g`:
///
///   states   token, position i32 [rows]  a token that is not in the cache yet, and how many are
///            going i32 [rows]            1 where a row goes on, else 0
///            seen u8 [rows * V]          penalises: 1 for a token that has been there; the run adds its own
///   inputs   limit i32 [rows]            the position at which a row ends
///            rule f32 [rows, 4], seed i32 [rows, 4]  as nodes::Sample
///            draws i32 [rows]            what to add to a position for the number of the draw
///            stops i32 [rows, stops]     -1: none
///            penalty f32 [rows]          penalises: as nn::penalised
///
/// and what a run leaves of a row that goes on: the token drawn in `token`, and in the states text i32 and
/// log_probability f32 [rows * capacity], where the cache has the token in front (row * capacity + position);
/// `position` is one more, and `going` is 0 behind a stop or at the limit. A row that stands still, or has scores that
/// are not finite and NaN for a log-probability, keeps its token and position, and writes what nobody may read.
std::vector<std::pair<std::string, Expr>> decode_step(Graph& g, const DecoderConfig& c, const DecodeStepShape& shape,
                                                      nn::Precision p);

}  // namespace tenon
