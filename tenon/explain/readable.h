// Expressions as a person would write them: `silu(x * scale + shift)`, `acc + bias + residual`.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/kernels/launch.h"

namespace tenon {

/// The text of an expression, and the values that it names because they are used more than once ("v1 = ..").
struct ReadableText {
  std::string text;
  std::vector<std::string> where;
};

/// Prints expressions of one launch. Omits reshapes and broadcasts, since shapes are printed elsewhere. Strips from
/// names of weights the part that the launch's name repeats.
class Readable {
 public:
  explicit Readable(std::string launch_name) : launch_name_(std::move(launch_name)) {}

  ReadableText print(const Expr& e);
  /// A leaf's name, as print shows it.
  std::string leaf(const Expr& e) const;

 private:
  std::string text(const Expr& e, int precedence);
  std::string inline_text(const Expr& e, int precedence);
  std::string pointwise(const Expr& e, int precedence);
  std::string view(const Expr& e);
  std::string call(const Expr& e, const std::string& name);
  std::string parameter(const std::string& name) const;
  std::string short_weight(const std::string& name) const;

  std::string launch_name_;
  std::unordered_map<const Node*, int> uses_;
  std::unordered_map<const Node*, std::string> named_;
  std::vector<std::string> where_;
  int next_ = 1;
};

/// "[8192,320] x [960,320]", "conv2d 3x3 stride 2": the anchor's sizes in one phrase; empty without an anchor.
std::string anchor_text(const Expr& anchor);
/// True for attention that is told its number of keys when it runs: k and v are a whole cache, read only so far.
bool counts_keys(const Expr& anchor);
/// Floating-point operations of an anchor, two per multiply-add; 0 without an anchor. Attention has all keys of k.
double anchor_flops(const Expr& anchor);

}  // namespace tenon
