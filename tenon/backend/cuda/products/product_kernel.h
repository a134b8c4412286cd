// What the gemm and conv2d skeletons share: which core, tile or library runs a product, its operands and its results.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tenon/backend/cuda/launches/anchor_kernel.h"
#include "tenon/backend/cuda/products/matmul_route.h"
#include "tenon/backend/cuda/products/product_core.h"
#include "tenon/backend/cuda/products/row_factor.h"
#include "tenon/backend/cuda/products/tile_tuning.h"

namespace tenon::cuda {

/// What the kernels of a kind of product are told at run time.
using ProductSizes = std::variant<device::GemmSizes, device::ConvSizes>;

/// A kind of product supplies its sizes, operands and boxes; this chooses a core and a tile, measures, and adds the
/// kernel call that the core makes.
class ProductKernel : public AnchorKernel {
 public:
  // What cores make kernels of. Fields of the argument are numbered in the order in which sources are asked for: the
  // epilogue's first, as in the kernels that caches hold.
  using AnchorKernel::device;
  using AnchorKernel::epilogue_source;
  using AnchorKernel::MakeRowsBox;
  using AnchorKernel::map_source;
  using AnchorKernel::name;
  using AnchorKernel::operand_source;
  const ProductShape& product() const { return product_; }
  DType unit() const { return unit_; }
  int element_bytes() const { return static_cast<int>(size_of(unit_)); }
  /// What a choice's kernel is told. `box_rows`: of a tile whose rows are a box of a convolution's pixels; 0 where they
  /// are in plain order.
  ProductSizes sizes(const TileChoice& choice, int box_rows = 0) const;
  /// "gemm" or "conv", which names of templates in device/ begin with.
  std::string kind_name() const { return product_.kind == ProductKind::Gemm ? "gemm" : "conv"; }
  /// The operands as they are read: rows [.., k], or pixels and filters.
  const Expr& a() const { return a_; }
  const Expr& b() const { return b_; }
  /// Axes of B that are its rows.
  int b_split() const { return product_.kind == ProductKind::Gemm ? b_.shape().rank() - 1 : 1; }
  /// True if operand B lies in runs (device/mma_results.h): its rows in memory, which are K where it is in columns.
  bool b_in_runs() const { return in_runs_; }
  /// True for operands that are read as columns, [K][rows] in memory.
  bool a_in_columns() const { return a_in_columns_; }
  bool b_in_columns() const { return b_in_columns_; }

  /// A kernel's argument so far: its sizes.
  Params begin(const ProductSizes& sizes) const;
  /// "struct A { .. }" and "struct B { .. }" of operands in memory, read row by row.
  std::string rows_source(Params& params, std::string& headers);
  /// "struct B : Rows { .. }" from what is called Rows.
  std::string runs_source() const { return with_runs(in_runs_, stays(b_)); }
  /// The kernel call of a text that is complete but for the launch's name.
  TunedCall finish(KernelParts text, const Params& params, CoreLaunch launch) const;
  /// The kernel call of device/<kind>_<core>.h's template of that name, on the `tile` that it writes, for so many
  /// blocks a multiprocessor. `arguments`: behind the template's others.
  TunedCall tile_call(const TileChoice& choice, KernelParts text, const std::string& tile, int resident,
                      const Params& params, const std::string& arguments = {}) const;

  /// Rows that a core computes in front of the product: operand A is then `leaf`, in shared memory, where `rows` lie so
  /// far apart that 8 bytes of each of four meet no bank twice.
  struct Front {
    Expr value, leaf, rows;
  };
  const std::optional<Front>& front() const { return front_; }
  /// Of operand A, whose rows lie in memory: the factors that come behind the product.
  const std::optional<RowFactor>& factor() const { return factor_; }
  bool computes_rows_in_front() const { return front_ || factor_; }

  /// A narrow product that is added before the epilogue, to the result times the factors: rows of K in memory, B's in
  /// runs.
  struct Branch {
    Expr a, b;
    std::span<const Expr> factors;
  };
  const std::optional<Branch>& branch() const { return branch_; }
  /// "struct Branch { .. }", whose operands come in such boxes.
  std::string branch_source(Params& params, std::string& headers, const MakeRowsBox& a, const MakeRowsBox& b) const;

  /// By a library, where it could do all of it.
  const std::optional<MatmulRoute>& route() const { return route_; }
  /// True if a call in front of the library's fills the bias.
  bool fills_bias() const;

 protected:
  using AnchorKernel::AnchorKernel;

  /// Without splits and counts.
  virtual ProductSizes plain_sizes(int box_rows) const = 0;
  /// Chooses for the product, whose sizes, key, boxes and abilities the kind has set.
  void choose(ProductShape product);

  /// Operand B, hole 1, stored as [rows][..]: `stored`, its rows padded to blocks of 32, and `layout` from a leaf of
  /// that shape to the hole's view of it. Constants lie in runs where a lane is whole blocks; for a library they lie in
  /// order. Which of the two is kept is decided by choose().
  Expr weight_operand(Shape stored, const Layout& layout);
  /// Operand B from weights that stand [K][rows] in memory, in runs as the products have them whose rows they are.
  Expr column_operand(const Expr& weights);
  const Expr& in_order() const { return in_order_.leaf; }
  /// Hole `i`, which the core for a few rows computes: rows in memory whose factors come behind the product, or else a
  /// leaf in shared memory that it fills in front of it.
  Expr front_operand(size_t i);

  /// Holes 2 and 3 of a product with a branch, and its factors.
  void set_branch();

  /// For a kind that a library of network layers has: true if the launch runs on it, whose memory is reserved then.
  virtual bool choose_layers() { return false; }
  /// Adds its kernel calls, if it was chosen.
  virtual bool add_layers() { return false; }
  /// How many these are: none if it was not.
  virtual int layer_calls() const { return 0; }
  virtual int layer_kernels_beside() const { return 0; }
  /// Measures it beside the kernel call of ours.
  virtual void measure_layers(const std::function<TunedCall()>& own) { static_cast<void>(own); }
  const std::string& key() const { return product_.key; }

  // "8192x320x320".
  static std::string by_x(std::initializer_list<int> numbers);

  /// How the chosen core counts, if it does here.
  CountedRows counted_rows() const;
  /// Tiles of rows in plain order, for a value seen as [samples, inner, channels].
  CountTiles tiles_of_rows(const Shape& seen) const;

  Expr a_, b_;
  bool in_runs_ = false, a_in_columns_ = false, b_in_columns_ = false;
  std::optional<MatmulRoute> route_;  ///< before choose()

 private:
  static constexpr int64_t kFrontPadding = 16;  // elements of 16 bits
  void make_calls() final;
  int own_calls() const final;
  int kernels_beside() const final;
  bool tunes() const { return tensor_cores() && tuning(device()); }
  void measure();
  void reserve_library();
  TunedCall call_of(const TileChoice& choice) { return choice.core->call(*this, choice); }

  std::optional<Front> front_;
  std::optional<RowFactor> factor_;
  std::optional<Branch> branch_;
  // Constant weights as our cores read them, and in plain order.
  struct Weights {
    Expr leaf;
    PackedPiece piece;
  };
  Weights own_, in_order_;
  int64_t library_workspace_at_ = 0;
  ProductShape product_;
  TileChoice choice_;
};

}  // namespace tenon::cuda
