// What the kernels with an anchor share: the cores that do its arithmetic, operands as functors, and results. A kernel
// reads operands whose rows lie in memory (a fused prologue would be recomputed for every tile and tap). An operand
// that the plan did not store that way (operands.h) is stored by an extra kernel call before it, padded, widened or
// rearranged. Constant weights are computed once, in the layout that the kernel reads.
#pragma once
#include "tenon/backend/cuda/launches/launch_kernel.h"
#include "tenon/backend/cuda/launches/operands.h"
#include "tenon/backend/cuda/products/core_call.h"
#include "tenon/backend/cuda/products/row_factor.h"

namespace tenon::cuda {

class AnchorKernel : public LaunchKernel {
 protected:
  AnchorKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : LaunchKernel(std::move(device), launch, std::move(form)),
        unit_(unit_of(launch, form_, this->device().facts())),
        apart_(lanes_apart(form_)) {}

  /// Number of lanes of the anchor's columns that the epilogue combines: 1 if no result reads two of them.
  int lanes() const { return apart_ ? 1 : form_.lanes; }
  bool tensor_cores() const { return unit_ != DType::F32; }
  /// The rows of hole `i` as the kernel reads them: the hole itself if its rows lie in memory, else a leaf that an
  /// earlier kernel call fills, or for a constant the weight store. `layout` maps a leaf to the view through which the
  /// hole's elements are stored; `stored` is that leaf's shape.
  using Layout = std::function<Expr(const Expr& leaf)>;
  Expr operand(size_t i, const Shape& stored, const Layout& layout);
  /// The same, but always stored in its own leaf of type `t`.
  Expr stored_operand(size_t i, const Shape& stored, const Layout& layout, DType t);
  /// Declares a value that the kernel computes element by element where it needs it.
  void read_beside(const Expr& value);
  /// Adds `columns`, [all lanes' columns] of weights only, to the anchor's result before the epilogue.
  void add_columns(const Expr& columns);
  /// Hole `i` with its last axis zero-padded to whole 16-byte fragments.
  Expr padded_operand(size_t i);
  /// Adds the kernel calls that store computed operands.
  void make_operands();
  /// Number of those calls.
  int operand_calls() const;
  std::vector<ProgramOutput> beside_maps() const override;

  /// "struct A { .. }": rows in memory.
  std::string operand_source(const std::string& name, const Expr& operand, int split, Params& params) const;
  /// The same for an operand that is computed where it is read, in fragments of up to `most` columns, from `given`
  /// fragments that are passed to it (acc_name).
  std::string element_source(const std::string& name, const Expr& operand, int split, Params& params,
                             std::string& headers, int most = 1, int given = 0) const;
  /// "struct A { .. }" of a convolution's pixels that are computed where they are read.
  std::string pixels_source(const Expr& operand, Params& params, std::string& headers) const;
  /// True if the operand is a tensor whose rows are contiguous, without gaps.
  bool dense(const Expr& operand) const;
  /// Makes the box of one of the operand's tensors from its first element's address, its columns, and the row stride in
  /// elements.
  using MakeRowsBox = std::function<TensorBox(void* address, int64_t columns, int64_t stride)>;
  /// "struct A { .. }" for wgmma: the operand's tensor maps.
  std::string map_source(const std::string& name, const Expr& operand, BoxesOf boxes, Params& params,
                         const MakeRowsBox& box) const;
  /// "struct Epilogue { .. }" with fragments of up to `most` columns. `loads_apart`: a separate function issues its
  /// loads, where lanes are combined. `factor`: multiplies the sums by that factor, whose reduction is passed in the
  /// slot after the lanes.
  std::string epilogue_source(Params& params, std::string& headers, int most, bool loads_apart = false,
                              const RowFactor* factor = nullptr);

  /// "struct Factors { .. }", whose compute multiplies the anchor's result, all lanes as one, by `factors`.
  std::string scaled_source(std::span<const Expr> factors, Params& params, std::string& headers) const;

  /// Reserves the workspace for split-K (split-KV in attention); nothing if `needs` has none.
  void reserve_split(const CallNeeds& needs);
  /// Adds the kernel's own kernel call, whose SplitK, at byte `split_at` of its sizes, points to what was reserved.
  void add_core(KernelCall call, size_t split_at, std::vector<std::pair<size_t, int64_t>> scratch = {});

  DType unit_;  ///< element type of the cores: it holds all values of the anchor's arithmetic

 private:
  std::string lanes_source(Params& params, std::string& headers, int most);
  /// The launch's results, with what is done to the sums before them.
  std::vector<ProgramOutput> results_of_sums(const RowFactor* factor = nullptr) const;

  bool apart_;
  Expr added_;  ///< by add_columns; empty if nothing is added
  struct Split {
    int64_t workspace_at, counters_at;
  };
  std::optional<Split> split_;
  struct Stored {
    Expr value, place, leaf;
  };
  std::vector<Stored> stored_;
  std::vector<Expr> read_in_place_;
};

}  // namespace tenon::cuda
