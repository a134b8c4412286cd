// A launch: one trip through memory. It is expressions over buffers and weights with at most one anchor; what
// is below the anchor fills the input holes of a skeleton, what is above it fills the epilogue.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

/// A tensor that a launch writes: `value`, stored as value.dtype() in the buffer `buffer`.
struct Output {
  std::string buffer;
  Expr value;
  std::string why = {};  ///< why it is stored, with figures; empty if there was nothing to decide
};

/// A launch, by name, and one of its holes ("out": its epilogue).
struct Place {
  std::string launch, hole;
  bool operator==(const Place&) const = default;
};

/// What happened to a reader of a launch's result that is not part of the launch.
enum class Apart : uint8_t {
  Refused,  ///< this launch could not absorb it; another anchor's launch may have
  Fused,    ///< in a hole of another anchor's launch, where it belongs just as well
  Anchor    ///< it is an anchor, which reads the result through an input hole
};
/// Their names in text and JSON.
inline constexpr std::string_view kApartNames[] = {"refused", "fused", "anchor"};

/// A reader that was kept out of a launch, why, and where it is computed.
struct KeptApart {
  std::string what;
  std::string why;
  Apart kind = Apart::Refused;
  std::vector<Place> into = {};
};

struct Form;

/// In the values, leaves of type Input, ScalarInput and State name buffers, Param leaves name weights. All outputs
/// belong to one Graph, which outlives the launch.
struct Launch {
  std::string name;      ///< unique in its plan, readable: "down_blocks.0.resnets.0.conv1"
  std::string skeleton;  ///< name of a registered skeleton
  std::vector<Output> outputs;
  std::vector<KeptApart> apart;
  /// Buffers it reads that neither it nor the previous launch of its phase writes: complete before that one began.
  std::vector<std::string> settled = {};
  /// The form (form.h), set once it has a skeleton. Shared by all readers: copy it before adding to it.
  std::shared_ptr<const Form> form = {};
};

/// All nodes of the launch's values, operands before their users.
std::vector<Expr> nodes_of(const Launch& launch);
/// Memory leaves that the launch reads, once each, in topological order.
std::vector<Expr> operands_of(const Launch& launch);
/// The only anchor among the launch's nodes, not counting companions, or an empty Expr. Throws Error(Internal) if there
/// are several.
Expr anchor_of(const Launch& launch);
/// True if `e` is another result of the anchor `of`, which that anchor's launch stores as is.
bool is_companion(const Expr& e, const Expr& of);
/// Bytes read from memory to compute `values` from what `in_memory` says is stored there: every tensor counts once, and
/// only as much of it as the views above it use.
int64_t bytes_read(std::span<const Expr> values, const std::function<bool(const Expr&)>& in_memory);
/// Bytes of a tensor of this shape and type.
int64_t bytes_of(const Shape& shape, DType dtype);

}  // namespace tenon
