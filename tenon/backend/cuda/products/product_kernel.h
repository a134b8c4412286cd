// What the gemm and conv2d skeletons share: the choice of core, tile or library for a product, its operands and
// results.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tenon/backend/cuda/launches/anchor_kernel.h"
#include "tenon/backend/cuda/products/matmul_route.h"
#include "tenon/backend/cuda/products/product_core.h"
#include "tenon/backend/cuda/products/row_factor.h"
#include "tenon/backend/cuda/products/tile_tuning.h"

namespace tenon::cuda {

/// Run-time sizes passed to the kernels of a kind of product.
using ProductSizes = std::variant<device::GemmSizes, device::ConvSizes>;

/// Each kind of product supplies its sizes, operands and boxes; this class chooses core and tile, tunes, and adds the
/// kernel call that the core makes.
class ProductKernel : public AnchorKernel {
 public:
  // What cores build kernels from. Fields of the argument are numbered in the order in which sources are requested: the
  // epilogue's first, as in kernels that are already cached.
  using AnchorKernel::device;
  using AnchorKernel::epilogue_source;
  using AnchorKernel::MakeRowsBox;
  using AnchorKernel::map_source;
  using AnchorKernel::name;
  using AnchorKernel::operand_source;
  const ProductShape& product() const { return product_; }
  DType unit() const { return unit_; }
  int element_bytes() const { return static_cast<int>(size_of(unit_)); }
  /// The sizes passed to a choice's kernel. `box_rows`: rows of a tile that is a box of a convolution's pixels; 0 if
  /// rows are in plain order.
  ProductSizes sizes(const TileChoice& choice, int box_rows = 0) const;
  /// "gemm" or "conv", the prefix of template names in device/products/ and device/convolutions/.
  std::string kind_name() const { return product_.kind == ProductKind::Gemm ? "gemm" : "conv"; }
  /// The operands as they are read: rows [.., k], or pixels and filters.
  const Expr& a() const { return a_; }
  const Expr& b() const { return b_; }
  /// Number of leading axes of B that form its rows.
  int b_split() const { return product_.kind == ProductKind::Gemm ? b_.shape().rank() - 1 : 1; }
  /// True if operand B is stored permuted (device/products/mma_results.h): its rows in memory, which are K if it is
  /// transposed.
  bool b_permuted() const { return permuted_; }
  /// True for operands stored transposed, [K][rows].
  bool a_in_columns() const { return a_in_columns_; }
  bool b_in_columns() const { return b_in_columns_; }
  bool batched() const { return batched_; }  ///< several products, of matrices of their own

  /// A kernel's argument so far: its sizes.
  Params begin(const ProductSizes& sizes) const;
  /// "struct A { .. }" and "struct B { .. }" of operands in memory, read row by row.
  std::string rows_source(Params& params, std::string& headers) const;
  /// "struct B : Rows { .. }" from the functor that operand_source or map_source named Rows.
  std::string b_source() const;
  /// The kernel call of a source that is complete except for the launch's name.
  TunedCall finish(KernelParts source, const Params& params, CallNeeds needs) const;
  /// The kernel call of the core's template (device/{products/gemm,convolutions/conv}_<core>.h) on the tile type
  /// `tile`, with `resident` blocks per multiprocessor. `arguments`: appended to the template's other arguments;
  /// `core`: the name of another core whose template it is.
  TunedCall tile_call(const TileChoice& choice, KernelParts source, const std::string& tile, int resident,
                      const Params& params, const std::string& arguments = {}, std::string_view core = {}) const;

  /// Rows that a core computes before the product. Operand A is then `leaf`, in shared memory, where `rows` has a
  /// padded row stride so that 8-byte reads from each of four rows have no bank conflicts.
  struct Front {
    Expr value, leaf, rows;
  };
  const std::optional<Front>& front() const { return front_; }
  /// For an operand A whose rows lie in memory: the row factors applied after the product.
  const std::optional<RowFactor>& factor() const { return factor_; }
  /// The norm that the core applies to the sums of rows that lie in memory; operand B is then centred.
  const std::optional<CentredNorm>& norm() const { return norm_; }
  /// "using Norm = ..;" for the norm.
  std::string norm_source(Params& params, std::string& headers) const;
  /// True if operand A is not rows as they are multiplied.
  bool computes_rows_in_front() const { return front_ || factor_ || norm_; }

  /// A narrow product that is added, before the epilogue, to the result scaled by the factors: operands with rows of K
  /// in memory, B's permuted.
  struct Branch {
    Expr a, b;
    std::span<const Expr> factors;
  };
  const std::optional<Branch>& branch() const { return branch_; }
  /// "struct Branch { .. }" with operands loaded in such boxes.
  std::string branch_source(Params& params, std::string& headers, const MakeRowsBox& a, const MakeRowsBox& b) const;

  /// The product as a library's, if one could do all of it.
  const std::optional<MatmulRoute>& route() const { return route_; }
  /// True if a kernel call before the library's fills the bias.
  bool fills_bias() const;

 protected:
  using AnchorKernel::AnchorKernel;

  /// The sizes without splits and counts.
  virtual ProductSizes plain_sizes(int box_rows) const = 0;
  /// Chooses for the product; the kind has set its sizes, key, boxes and abilities.
  void choose(ProductShape product);

  /// Operand B, hole 1, stored as [rows][..] with the shape `stored`, whose rows are padded to blocks of 32; `layout`
  /// maps a leaf of that shape to the hole's view of it. Constants are stored permuted if a lane is whole blocks; for a
  /// library they are stored in plain order. choose() decides which of the two is kept.
  Expr weight_operand(const Shape& stored, const Layout& layout);
  /// Operand B from weights stored [K][rows] in memory, permuted as the products that use their rows have them.
  Expr column_operand(const Expr& weights);
  const Expr& in_order() const { return in_order_.leaf; }
  /// Hole `i`, which the skinny core computes: rows in memory whose factors are applied after the product, or else a
  /// leaf in shared memory that the core fills before the product.
  Expr front_operand(size_t i);
  /// Hole 0 as the rows of `norm` in memory. Operand B becomes what the norm makes of it.
  Expr behind_norm(const CentredNorm& norm);

  /// Sets up holes 2 and 3 of a product with a branch, and its factors.
  void set_branch();

  /// For a kind that a neural-network library supports: true if the launch runs on it; reserves its memory.
  virtual bool choose_layers() { return false; }
  /// Adds the library's kernel calls, if it was chosen.
  virtual bool add_layers() { return false; }
  /// Number of those calls; 0 if it was not chosen.
  virtual int layer_calls() const { return 0; }
  virtual int layer_kernels_beside() const { return 0; }
  /// Times the library against our own kernel call.
  virtual void measure_layers(const std::function<TunedCall()>& own) { static_cast<void>(own); }
  const std::string& key() const { return product_.key; }

  // "8192x320x320".
  static std::string by_x(std::initializer_list<int> numbers);

  /// How the chosen core counts statistics, if it does so for this launch.
  CountedRows counted_rows() const;
  /// Tiles of rows in plain order, for a value seen as [samples, inner, channels].
  CountTiles tiles_of_rows(const Shape& seen) const;

  Expr a_, b_;
  bool permuted_ = false, a_in_columns_ = false, b_in_columns_ = false;
  bool batched_ = false;
  bool computes_pixels_ = false;      ///< operand A is computed where the kernel reads it
  std::optional<MatmulRoute> route_;  ///< set before choose()

 private:
  void make_calls() final;
  int own_calls() const final;
  int kernels_beside() const final;
  bool tunes() const { return tensor_cores() && tuning(device()); }
  void measure();
  void reserve_library();
  TunedCall call_of(const TileChoice& choice) { return choice.core->call(*this, choice); }

  std::optional<Front> front_;
  std::optional<RowFactor> factor_;
  std::optional<CentredNorm> norm_;
  Expr weight_sums_;  ///< of the centred weights, [n, 1]
  std::optional<Branch> branch_;
  // Constant weights as our cores read them, and in plain order.
  struct Weights {
    Expr leaf;
    PackedWrite write;
  };
  Weights own_, in_order_;
  int64_t library_workspace_at_ = 0;
  ProductShape product_;
  TileChoice choice_;
};

}  // namespace tenon::cuda
