// Normalisation, written so that the producer of values can also compute their statistics: group statistics are made of
// means and variances per sample and channel, which the producer's launch yields, and values only need one
// multiply-add.
#pragma once
#include "tenon/nn/scope.h"

namespace tenon::nn {

/// Groups and epsilon of a group norm.
struct GroupNorm {
  int64_t groups = 32;
  double eps = 1e-5;
};

/// Means of x [N,..,C] per sample and channel: f32 [N,1..,C]. For a concatenation of channels, concatenates the means
/// of its parts, so that each part's producer can supply its own.
Expr channel_means(const Expr& x);
/// The same for biased variances.
Expr channel_variances(const Expr& x);

/// (x - mean) / sqrt(var + eps) * gamma + beta per sample and group of consecutive channels, with the biased variance:
/// the mean of the channels' variances plus the variance of their means. x [N,..,C], gamma and beta [C]; yields f32.
/// Throws Error(Usage) unless the groups divide C.
Expr group_norm(const Expr& x, const GroupNorm& n, const Expr& gamma, const Expr& beta);
/// group_norm with the scope's `weight` and `bias` [C].
Expr group_norm(const Scope& s, const Expr& x, const GroupNorm& n);

/// (x - mean) / sqrt(var + eps) * gamma + beta over the last axis, with the biased variance; yields f32.
Expr layer_norm(const Expr& x, double eps, const Expr& gamma, const Expr& beta);
/// layer_norm without gamma and beta.
Expr layer_norm(const Expr& x, double eps);
/// layer_norm with the scope's `weight` and `bias` [C].
Expr layer_norm(const Scope& s, const Expr& x, double eps);

/// x / sqrt(mean(x^2) + eps) over the last axis, rounded to `act`, then times gamma; yields f32. Published language
/// models use this order: the weight multiplies a rounded number.
Expr rms_norm(const Expr& x, double eps, const Expr& gamma, DType act);
/// rms_norm with the scope's `weight` [C].
Expr rms_norm(const Scope& s, const Expr& x, double eps);

}  // namespace tenon::nn
