// Maps that transpose.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "tenon/backend/cuda/device/launches/sizes.h"
#include "tenon/backend/cuda/launches/kernel_call.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cuda {
namespace {

constexpr int64_t kLineBytes = 128;

// A value's operands: the longest chains of views that end in leaves in memory.
std::vector<Expr> operands_of(const Expr& value) {
  std::vector<Expr> out, stack{value};
  std::unordered_set<const Node*> seen;
  while (!stack.empty()) {
    const Expr e = stack.back();
    stack.pop_back();
    if (!seen.insert(e.get()).second) continue;
    if (is_memory_leaf(e) || (e->family() == Family::View && is_view_chain(e)))
      out.push_back(e);
    else
      stack.insert(stack.end(), e->in.begin(), e->in.end());
  }
  return out;
}

// Number of elements contiguous with their neighbour in the next row, less those contiguous with the next column's.
int64_t elements_by_rows(const Expr& view, const MatrixDomain& matrix) {
  const auto pieces = affine_pieces(view, matrix.shape, matrix.split);
  if (!pieces) return 0;
  int64_t out = 0;
  for (const AffinePiece& p : *pieces) {
    if (!p.leaf) continue;
    const int64_t elements = std::min((p.row_end - p.row_begin) * (p.col_end - p.col_begin), p.leaf.shape().numel());
    const Digit &row = p.rows.back(), &col = p.cols.back();
    if (col.stride == 1 && col.extent > 1) out -= elements;
    if (row.stride == 1 && row.extent >= device::kTransposedRows / 2 && col.stride > 1) out += elements;
  }
  return out;
}

}  // namespace

std::optional<KernelCall> transposed_call(Device& device, const std::string& name,
                                          std::span<const ProgramOutput> outputs, const MatrixDomain& matrix) {
  if (outputs.size() != 1 || matrix.rows() < device::kTransposedRows || matrix.cols() < 16) return std::nullopt;
  const ProgramOutput& out = outputs.front();
  if (!is_float(out.dtype) || size_of(out.dtype) > 4 || out.value.shape() != matrix.shape) return std::nullopt;
  int64_t by_rows = 0;
  for (const Expr& x : operands_of(out.value)) by_rows += elements_by_rows(x, matrix) * size_of(x.dtype());
  if (by_rows <= 0) return std::nullopt;
  const int64_t size = size_of(out.dtype), columns = kLineBytes / size;
  Params params;
  device::TransposedSizes sizes{};
  sizes.rows = checked_int(matrix.rows());
  sizes.cols = checked_int(matrix.cols());
  const int64_t column_tiles = div_up(matrix.cols(), columns);
  sizes.column_tiles = divisor_of(column_tiles);
  params.set_sizes("TransposedSizes", sizes);
  const ProgramOutput loaded{out.value, {}, DType::F32};
  const ProgramOutput stored{input(out.value.graph(), acc_name(0), DType::F32, matrix.shape), out.place, out.dtype};
  ProgramSource load(std::array{loaded}, matrix, params, 1);
  ProgramSource store(std::array{stored}, matrix, params, static_cast<int>(4 / size));
  KernelParts source;
  source.name = name + " transposed";
  source.functors = load.functor("Load") + store.functor("Store", 1);
  source.headers =
      "#include \"tenon/backend/cuda/device/launches/transposed.h\"\n" + load.includes() + store.includes();
  source.kernel =
      "KERNEL(kTransposedThreads, 1, Params, p) { map_transposed<Load, Store, " + type_source(out.dtype) + ">(p); }\n";
  CallShape shape;
  shape.threads = device::kTransposedThreads;
  shape.grid_x = div_up(matrix.rows(), device::kTransposedRows) * column_tiles;
  shape.shared_bytes = device::kTransposedRows * (kLineBytes + 4);
  return KernelCall(device, source, params, shape);
}

}  // namespace tenon::cuda
