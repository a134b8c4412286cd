// Which operands the kernels with an anchor read in place. The kernels (which store the others themselves) and the
// planner (which stores them beforehand) use the same answer.
#pragma once
#include <memory>
#include <set>

#include "tenon/backend/affine.h"
#include "tenon/backend/cuda/attention/attention_tiles.h"
#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/products/row_factor.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/launch.h"
#include "tenon/kernels/target.h"

namespace tenon::cuda {

/// Element type of the cores that do the arithmetic of the launch's anchor: the anchor's own; F16 for e4m3 that the
/// device's e4m3 core does not take, which is exact; F32 for heads that no tensor-core kernel supports. Throws
/// Error(Usage) for an arithmetic without a core.
DType unit_of(const Launch& launch, const Form& form, const DeviceFacts& facts);

/// The lanes that `value` reads.
std::set<int> lanes_of(const Expr& value);
/// True if there are lanes and every result reads only one of them (merged siblings: q, k and v).
bool lanes_apart(const Form& form);

/// Elements of a 16-byte fragment.
int vector_width(DType t);

/// True if the rows of `hole` lie in memory in the way that a kernel of these cores reads them.
bool read_in_place(const Expr& hole, DType unit, const DeviceFacts& facts);

/// The tile of the core for few queries per head of keys, which computes its queries itself; depth 0 if it does not
/// take the launch's attention.
AttentionGroupedShape grouped_tile(const Form& form, DType unit);

/// True if holes 1 and 2 are paged keys and values whose page numbers attention's kernels look up themselves.
bool reads_pages(const Form& form, DType unit);

/// True if that attention core writes the rows of the form's updates: for each index, one row of a key cache and one of
/// a value cache. It must read the caches whole, [batch * capacity, heads, depth] viewed by heads, or as pools of which
/// it reads whole pages.
bool writes_rows(const Form& form, DType unit);
/// The update of the state that hole 1 (keys) or 2 (values) reads, in a form whose updates the core writes.
const FormOutput& update_of(const Form& form, size_t hole);

/// True if the skinny core (products of few rows) can take the launch's product; with up to
/// SkinnyTileShape::kMaxRowsInFront rows it does, with more where it is estimated to be faster.
bool takes_few_rows(const Form& form, DType unit, const DeviceFacts& facts);
/// Most columns of a row that a warp computes in its registers before a product.
inline constexpr int64_t kMaxColumnsInFront = 4096;
/// True if the skinny core computes operand A before the product, in every block: rows that are reduced (a norm), for
/// which a block has shared memory beside the smallest tile.
bool computes_rows(const Form& form, DType unit, const DeviceFacts& facts);

/// True if the launch counts statistics of what it stores.
bool counts_statistics(const Form& form);

/// The norm that operand A is behind if the wgmma core applies it to the sums: a layer norm of many rows in memory,
/// before constant weights.
std::optional<CentredNorm> norm_behind(const Form& form, DType unit, const DeviceFacts& facts);

/// What boxes TMA loads: rows; columns, of an operand stored transposed, [K][rows]; or those of a stack of matrices.
enum class BoxesOf { Rows, Columns, StackedColumns };

/// True if TMA can load boxes of the operand's rows: from one tensor, or from several joined at multiples of 128 bytes.
bool rows_in_boxes(const Expr& operand, DType unit);

/// True if TMA can load boxes of an operand stored transposed, [K][rows]: from one tensor, or from several joined at
/// multiples of 64 rows.
bool columns_in_boxes(const Expr& operand, DType unit, bool matrices = false);
/// Where a stack of transposed matrices lies: groups of `beside` matrices next to each other, `stride` elements apart.
struct MatrixStack {
  int64_t beside, groups, stride;
};
/// For an operand that columns_in_boxes takes, of which `whole` is all.
MatrixStack stack_of(const Expr& operand, const AffinePiece& whole);
/// True if the wgmma core takes hole `i` of a product transposed as it is, given the other hole as it now is.
bool takes_columns(const Form& form, size_t i, DType unit, const DeviceFacts& facts);
/// For constant weights of which the product reads columns as rows: the value to store instead, [K][rows]; else empty.
Expr weights_in_columns(const Form& form, DType unit, const DeviceFacts& facts);

/// Holes must lie in memory, except those for which a tensor in memory would be copied again, into padded rows, another
/// type or another order. The kernel computes and stores these in one pass.
Target target_of(std::shared_ptr<Device> device);

}  // namespace tenon::cuda
