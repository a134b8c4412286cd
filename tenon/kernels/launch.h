// A launch: one trip through memory. Its body is an expression over buffers and weights with at most one anchor; what
// stands below the anchor fills the input holes of a skeleton, what stands above fills its epilogue.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

/// One tensor that a launch writes: `value` stored in value.dtype() to the buffer `buffer`.
struct Output {
  std::string buffer;
  Expr value;
  std::string why = {};  ///< what decided that it is stored, with figures; empty where that needs no reason
};

/// A launch by its name, and one of its holes ("out": its epilogue).
struct Place {
  std::string launch, hole;
  bool operator==(const Place&) const = default;
};

/// What became of a reader of a launch's result that the launch does not compute.
enum class Apart : uint8_t {
  Refused,  ///< this launch could not take it in; it may have found a place in another anchor's all the same
  Fused,    ///< in a hole of another anchor's launch, where it belongs as well
  Anchor    ///< an anchor itself, which reads the result through an input hole
};
/// Their names in texts and JSON.
inline constexpr std::string_view kApartNames[] = {"refused", "fused", "anchor"};

/// A reader that stayed out of a launch, why, and where it is computed.
struct KeptApart {
  std::string what;
  std::string why;
  Apart kind = Apart::Refused;
  std::vector<Place> into = {};
};

struct Form;

/// Leaves of type Input, ScalarInput and State in the values name buffers; Param leaves name weights. All outputs
/// belong to one Graph, which outlives the launch.
struct Launch {
  std::string name;      ///< unique in its plan, readable: "down_blocks.0.resnets.0.conv1"
  std::string skeleton;  ///< name of a registered skeleton
  std::vector<Output> outputs;
  std::vector<KeptApart> apart;
  /// Buffers it reads that neither it nor the launch in front of it in its phase writes: whole before that one began.
  std::vector<std::string> settled = {};
  /// The body taken apart (form.h), since it has a skeleton. Shared by all who read it: who adds to it copies it.
  std::shared_ptr<const Form> form = {};
};

/// All nodes of the launch's values, operands first.
std::vector<Expr> nodes_of(const Launch& launch);
/// Memory leaves that the launch reads, each once, in topological order.
std::vector<Expr> operands_of(const Launch& launch);
/// The only anchor among the launch's nodes, or an empty Expr; throws Error(Internal) if there are several. Its
/// companions do not count.
Expr anchor_of(const Launch& launch);
/// True if `e` is another result of the anchor `of`, which leaves with it, stored as it is.
bool is_companion(const Expr& e, const Expr& of);
/// Bytes that are read from memory to compute `values`, down to what `in_memory` says is there: of every tensor once,
/// and no more of it than the views on the way let through.
int64_t bytes_read(std::span<const Expr> values, const std::function<bool(const Expr&)>& in_memory);
/// Bytes that one run moves: what is read of every distinct operand, once, plus every output written once. Weights that
/// an anchor multiplies count in its arithmetic, where that is narrower.
int64_t bytes_moved(const Launch& launch);
/// Bytes of a tensor of this shape and type.
int64_t bytes_of(const Shape& shape, DType dtype);

}  // namespace tenon
