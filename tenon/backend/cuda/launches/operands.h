// What the kernels with an anchor read where it lies: one answer for the kernels, which store the rest themselves, and
// for the planner, which stores it before.
#pragma once
#include <memory>
#include <set>

#include "tenon/backend/cuda/attention/attention_launch.h"
#include "tenon/backend/cuda/device.h"
#include "tenon/kernels/target.h"

namespace tenon::cuda {

/// The cores that multiply in the arithmetic of the launch's anchor, by their element type: its own; F16 for e4m3 that
/// the device's core for it does not take, which is exact; F32 for heads that no tensor-core kernel has. Throws
/// Error(Usage) for an arithmetic that there is no core for.
DType unit_of(const Launch& launch, const Form& form, const DeviceFacts& facts);

/// The lanes that `value` reads.
std::set<int> lanes_of(const Expr& value);
/// True if there are lanes and every result reads one of them only (merged siblings: q, k and v).
bool lanes_apart(const Form& form);

/// `hole` without an outermost rounding to the type it is stored in anyway.
Expr without_rounding(const Expr& hole, DType t);

/// Elements of a 16-byte fragment.
int run_of(DType t);

/// True if rows of `hole` lie in memory as a kernel of these cores reads them.
bool read_in_place(const Expr& hole, DType unit, const DeviceFacts& facts);

/// The tile of the core for a few queries a head of keys, which computes its queries; depth 0 where it does not take
/// the launch's attention.
AttentionGroupedShape grouped_tile(const Form& form, DType unit);

/// True if holes 1 and 2 are keys and values in pages that attention's kernels look up themselves.
bool reads_pages(const Form& form, DType unit);

/// Of attention by that core: true if it writes the rows of the form's updates. They are one row of a cache of keys and
/// one of values for each index, of caches that it reads whole, [batch * capacity, heads, depth] seen by heads, or of
/// pools of pages that it reads whole pages of.
bool writes_rows(const Form& form, DType unit);
/// The update of the state that hole 1 (keys) or 2 (values) reads, of a form whose updates it writes.
const FormOutput& update_of(const Form& form, size_t hole);

/// True if the core for products of a few rows takes the launch's.
bool takes_few_rows(const Form& form, DType unit, const DeviceFacts& facts);
/// Of a row that it computes in front of a product, in the registers of a warp.
inline constexpr int64_t kMostColumnsInFront = 4096;
/// True if it computes operand A in front of the product: rows that are reduced (a norm), in every block.
bool computes_rows(const Form& form, DType unit, const DeviceFacts& facts);

/// True if the copy engine can bring boxes of the operand's rows: of one tensor, or of several side by side that meet
/// at whole steps of 128 bytes.
bool rows_in_boxes(const Expr& operand, DType unit);

/// True if the copy engine can bring boxes of an operand that lies in columns, [K][rows]: of one tensor, or of several
/// that meet at multiples of 64 rows.
bool columns_in_boxes(const Expr& operand, DType unit);
/// True if the core with wgmma takes hole `i` of a product as it lies in columns, with the other hole as that is now.
bool takes_columns(const Form& form, size_t i, DType unit, const DeviceFacts& facts);
/// Constant weights whose columns the product reads as rows: what stands for them in memory, [K][rows]; else empty.
Expr weights_in_columns(const Form& form, DType unit, const DeviceFacts& facts);

/// Holes must lie in memory, but for those that a tensor in memory would be copied for again: into padded rows, another
/// type or another order. These the kernel computes and stores in one pass.
Target target_of(std::shared_ptr<Device> device);

}  // namespace tenon::cuda
