// What the kernels with an anchor share: the cores that do its arithmetic, operands as functors, and results. A kernel
// reads operands whose rows lie in memory (a prologue would be computed again for every tile and tap). What the plan
// did not put there (operands.h) a kernel call in front of it stores, padded, widened or rearranged. Constant weights
// are computed once, in the layout that the kernel reads.
#pragma once
#include "tenon/backend/cuda/launches/launch_kernel.h"
#include "tenon/backend/cuda/launches/operands.h"
#include "tenon/backend/cuda/products/core_launch.h"
#include "tenon/backend/cuda/products/row_factor.h"

namespace tenon::cuda {

class AnchorKernel : public LaunchKernel {
 protected:
  AnchorKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
      : LaunchKernel(std::move(device), launch, std::move(form)),
        unit_(unit_of(launch, form_, this->device().facts())),
        apart_(lanes_apart(form_)) {}

  /// Parts of the anchor's columns that meet in the epilogue: 1 if no result reads two of them.
  int lanes() const { return apart_ ? 1 : form_.lanes; }
  bool tensor_cores() const { return unit_ != DType::F32; }
  /// The rows of hole `i` as the kernel reads them: the hole itself where they lie in memory, else a leaf that a kernel
  /// call in front of the kernel, or the binding of a constant, fills. `layout`: from a leaf to the view that the
  /// hole's elements are stored through; `stored`: that leaf's shape.
  using Layout = std::function<Expr(const Expr& leaf)>;
  Expr operand(size_t i, const Shape& stored, const Layout& layout);
  /// The same, in a leaf of its own and of type `t` in any case.
  Expr stored_operand(size_t i, const Shape& stored, const Layout& layout, DType t);
  /// A value that the kernel computes element by element where it wants it.
  void read_beside(const Expr& value);
  /// Hole `i` with its last axis padded by zeros to fragments of 16 bytes.
  Expr padded_operand(size_t i);
  /// From rows in plain order to where they lie in runs (device/mma_results.h): the first axis of `rows`, a multiple of
  /// 32.
  static Expr in_runs(const Expr& rows);
  /// Adds the kernel calls that store computed operands.
  void make_operands();
  /// How many these are.
  int operand_calls() const;
  std::vector<ProgramOutput> beside_maps() const override;

  /// "struct A { .. }": rows in memory for a tensor-core kernel, or single elements for an f32 kernel.
  std::string operand_source(const std::string& name, const Expr& operand, int split, Params& params,
                             std::string& headers);
  /// True if the operand is a tensor with nothing between its rows.
  bool dense(const Expr& operand) const;
  /// The box of one of the operand's tensors, from the address of its first element, its columns, and the elements from
  /// one row to the next.
  using MakeRowsBox = std::function<TensorBox(void* address, int64_t columns, int64_t stride)>;
  /// "struct B : Rows { .. }": operand B of a tensor-core kernel from what operand_source or map_source calls Rows.
  /// `constant`: no kernel changes it.
  static std::string with_runs(bool runs, bool constant);
  /// "struct A { .. }" for wgmma: tensor maps, of rows, or of an operand that lies in columns, [columns][rows].
  std::string map_source(const std::string& name, const Expr& operand, bool in_columns, Params& params,
                         const MakeRowsBox& box) const;
  /// "struct Epilogue { .. }" with fragments of up to `most` columns.
  /// `loads_apart`: what it reads is loaded by a function of its own, where lanes meet. `factor`: it multiplies the
  /// sums by that, whose reduction it finds in the place behind the lanes.
  std::string epilogue_source(Params& params, std::string& headers, int most, bool loads_apart = false,
                              const RowFactor* factor = nullptr);

  /// "struct Factors { .. }", whose compute gives the product of the anchor's result, all lanes as one, and `factors`.
  std::string scaled_source(std::span<const Expr> factors, Params& params, std::string& headers) const;

  /// Reserves the memory that the parts of a split K (of keys, in attention) meet in: none where `launch` is not split.
  void reserve_split(const CoreLaunch& launch);
  /// Adds the kernel's own kernel call, whose SplitK, at `split_at` of its sizes, points to what was reserved.
  void add_core(KernelCall call, size_t split_at, std::vector<std::pair<size_t, int64_t>> scratch = {});

  DType unit_;  ///< element type of the cores: it holds all values of the anchor's arithmetic

 private:
  std::string lanes_source(Params& params, std::string& headers, int most);
  void scale_lanes(std::vector<ProgramOutput>& outputs, const RowFactor& factor);

  bool apart_;
  struct Split {
    int64_t workspace_at, counters_at;
  };
  std::optional<Split> split_;
  struct Stored {
    Expr value, place, leaf;
    bool clear;  // part of the leaf is not written: zeros
  };
  std::vector<Stored> stored_;
  std::vector<Expr> read_in_place_;
};

}  // namespace tenon::cuda
