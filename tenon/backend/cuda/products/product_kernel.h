// What the gemm and conv2d skeletons share: which core, tile or library runs a product, its operands and its results.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tenon/backend/cuda/codegen/program_source.h"
#include "tenon/backend/cuda/launches/anchor_kernel.h"
#include "tenon/backend/cuda/libraries/dnn_choice.h"
#include "tenon/backend/cuda/products/core_launch.h"
#include "tenon/backend/cuda/products/matmul_route.h"
#include "tenon/backend/cuda/products/row_factor.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {

/// A kind of product supplies its sizes (with a member `split`), operands and boxes, and makes the kernel call of any
/// choice; this chooses, measures and adds it.
class ProductKernel : public AnchorKernel {
 protected:
  using AnchorKernel::AnchorKernel;

  /// Which cores but wgmma could do a product.
  struct Cores {
    bool mma = true, skinny = false;
  };
  /// A product of m x n x k. `wgmma_tiles_m`: tiles along m, or nothing if boxes do not fit the operands.
  void choose(int64_t m, int64_t n, int64_t k, int64_t batch, const std::string& key,
              std::function<int64_t(const WgmmaTileShape&)> wgmma_tiles_m, Cores cores) {
    product_.m = m;
    product_.n = n;
    product_.k = k;
    product_.batch = batch;
    product_.lanes = lanes();
    product_.element_bytes = size_of(unit_);
    product_.wgmma_tiles_m = std::move(wgmma_tiles_m);
    // mma multiplies e4m3 on sm_89 only: on sm_90a it converts, and wgmma takes all that is multiplied in e4m3 there.
    product_.skinny = cores.skinny;
    if (front_) product_.front = k * size_of(unit_) * SkinnyTileShape::kMostRows;
    product_.mma = cores.mma && (unit_ != DType::E4M3 || device().facts().arch != "sm_90a");
    product_.counts = std::any_of(form_.outputs.begin(), form_.outputs.end(),
                                  [](const FormOutput& o) { return o.statistic != nullptr; });
    product_.key = key + " lanes " + std::to_string(lanes()) + " bytes " + std::to_string(size_of(unit_));
    if (route_) {
      product_.epilogue = route_->epilogue();
      product_.matmul = route_->problem();
      product_.library = [this] { return this->device().matmul_library(); };
    }
    if (tensor_cores()) choice_ = choose_tile(product_, device().facts());
    const bool layers = choose_layers(), library = layers || choice_.core == Core::CublasLt;
    if (own_.leaf && (!library || tunes())) ask_packed(own_.leaf, {own_.piece});
    if (own_.leaf && library) ask_packed(in_order_.leaf, {in_order_.piece});
    if (layers) return;
    library ? reserve_library() : reserve_split(core_launch(choice_));
  }

  /// Operand B, hole 1, stored as [rows][..]: `stored`, its rows padded to blocks of 32, and `layout` from a leaf of
  /// that shape to the hole's view of it. Constants lie in runs where a lane is whole blocks; for a library they lie in
  /// order. Which of the two is kept is decided by choose().
  Expr weight_operand(Shape stored, const Layout& layout) {
    const Expr& hole = form_.holes[1];
    const int64_t rows = stored[0];
    if (!tensor_cores() || !of_weights_only(hole)) return in_order_.leaf = operand(1, stored, layout);
    const Expr value = without_rounding(hole, unit_);
    in_order_.leaf = input(*form_.graph, "hole.1.in_order", unit_, stored);
    in_order_.piece = {value, layout(in_order_.leaf)};
    in_runs_ = lanes() == 1 || rows % (32 * lanes()) == 0;
    if (lanes() == 1) stored[0] = div_up(rows, 32) * 32;
    own_.leaf = input(*form_.graph, "hole.1", unit_, stored);
    own_.piece = {value, layout(slice(in_runs_ ? in_runs(own_.leaf) : own_.leaf, 0, 0, rows))};
    return own_.leaf;
  }
  const Expr& in_order() const { return in_order_.leaf; }
  bool in_runs_ = false;  ///< operand B lies in runs

  virtual CoreLaunch core_launch(const TileChoice& choice) const = 0;
  virtual TunedCall call(const TileChoice& choice) = 0;
  virtual const Expr& constant() const = 0;
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
  static std::string by_x(std::initializer_list<int> numbers) {
    std::string out;
    for (int n : numbers) out += (out.empty() ? "" : "x") + std::to_string(n);
    return out;
  }

  void make_calls() final {
    make_operands();
    if (form_.domain.numel() == 0) return;
    if (tunes()) measure();
    if (add_layers()) return;
    TunedCall made = call_of(choice_);
    for (KernelCall& before : made.before) add(std::move(before));
    if (choice_.core == Core::CublasLt)
      return add(std::move(made.call), {}, {{kLibraryWorkspace, library_workspace_at_}});
    std::vector<std::pair<size_t, int64_t>> scratch;
    if (const Counted* c = counted_in_core()) {
      scratch.emplace_back(made.count_at + offsetof(device::CountSizes, partials), c->partials_at);
      scratch.emplace_back(made.count_at + offsetof(device::CountSizes, rows), c->rows_at);
    }
    add_core(std::move(made.call), made.split_at, std::move(scratch));
  }

  int own_calls() const final {
    if (form_.domain.numel() == 0) return operand_calls();
    if (const int layers = layer_calls()) return operand_calls() + layers;
    return operand_calls() + (choice_.core == Core::CublasLt && fills_bias() ? 2 : 1);
  }

  int kernels_beside() const final {
    if (form_.domain.numel() == 0) return 0;
    if (layer_calls()) return layer_kernels_beside();
    if (choice_.core != Core::CublasLt) return 0;
    return route_->call(device(), name(), choice_.algorithm, false).call.library_kernels() - 1;
  }

  bool tunes() const { return tensor_cores() && tuning(device()); }

  void measure() {
    count_in_core(false);
    tune_tiles(device(), product_, {constant(), in_order()}, [this](const TileChoice& c) { return call_of(c); });
    measure_layers([this] { return call_of(choose_tile(product_, device().facts())); });
    count_in_core(true);
  }

  TunedCall call_of(const TileChoice& choice) {
    if (choice.core != Core::CublasLt) return call(choice);
    return route_->call(device(), name(), choice.algorithm, fills_bias());
  }

  bool fills_bias() const {
    const Expr& bias = route_->bias().value;
    return bias && !of_weights_only(bias);
  }

  // Memory that the library works in, and its bias where that is not the launch's own.
  void reserve_library() {
    const TunedCall made = route_->call(device(), name(), choice_.algorithm, false);
    library_workspace_at_ = reserve_scratch(made.launch.workspace_bytes);
    const MatmulRoute::Bias& bias = route_->bias();
    if (!bias.value) return;
    if (of_weights_only(bias.value))
      ask_packed(bias.leaf, {{bias.value, bias.leaf}});
    else
      place_in_scratch(bias.leaf);
  }

  template <class Sizes>
  TunedCall simt_call(const std::string& kernel, const char* type, const Sizes& sizes, const Expr& a, const Expr& b,
                      int b_split) {
    KernelParts text;
    text.name = name();
    Params params;
    params.set_sizes(type, sizes);
    text.functors = operand_source("A", a, a.shape().rank() - 1, params, text.headers) +
                    operand_source("B", b, b_split, params, text.headers) + epilogue_source(params, text.headers, 4);
    text.headers = "#include \"tenon/backend/cuda/device/simt.h\"\n" + text.headers;
    text.kernel = "KERNEL(kSimtThreads, 1, Params, p) { " + kernel + "_simt<A, B, Epilogue>(p); }\n";
    LaunchShape launch;
    launch.grid_x = static_cast<unsigned>(div_up(product_.n / lanes(), 64));
    launch.grid_y = static_cast<unsigned>(div_up(product_.m, 64));
    launch.grid_z = static_cast<unsigned>(product_.batch);
    launch.threads = 256;
    launch.shared_bytes = static_cast<unsigned>((1 + lanes()) * 16 * 68 * 4);
    return {KernelCall(device(), text, params, launch), {}, offsetof(Sizes, split), offsetof(Sizes, count)};
  }

  template <class Sizes>
  TunedCall mma_call(const TileChoice& choice, const std::string& kernel, const char* type, Sizes sizes, const Expr& a,
                     const Expr& b, int b_split) {
    KernelParts text;
    Params params;
    sizes.split.splits = choice.splits;
    if (counted_in_core()) sizes.count = counted_in_core()->sizes;
    params.set_sizes(type, sizes);
    text.functors = operand_source("A", a, a.shape().rank() - 1, params, text.headers) +
                    operand_source("Rows", b, b_split, params, text.headers) + with_runs(in_runs_, stays(b)) +
                    epilogue_source(params, text.headers, 8);
    return core_call<Sizes>(choice, std::move(text), kernel + "_mma", choice.mma.type(), 1, params);
  }

  /// Hole `i`, which the core for a few rows computes: rows in memory whose factors come behind the product, or else a
  /// leaf in shared memory that it fills in front of it.
  Expr front_operand(size_t i) {
    const Expr& hole = form_.holes[i];
    factor_ = row_factor(hole, unit_);
    if (factor_ &&
        (lanes() < form_.lanes || lanes() == kMaxFormLanes || !read_in_place(factor_->rows, unit_, device().facts())))
      factor_.reset();
    if (factor_) {
      read_beside(factor_->rows);
      return factor_->rows;
    }
    front_ = {without_rounding(hole, unit_), input(*form_.graph, "hole." + std::to_string(i), unit_, hole.shape())};
    read_beside(hole);
    return front_->leaf;
  }
  /// True if there is one.
  bool front() const { return front_ || factor_; }

  /// Warps of a multiprocessor where rows are computed in front: they have 128 registers a thread.
  static constexpr int kWarpsInFront = 16;
  /// Blocks of the tile that run together on a multiprocessor where they walk, and their tile: where there are many
  /// more than run together, and each would compute several rows a warp in front, that is paid once a block. Of fewer
  /// rows it takes no longer than the weights' way, and blocks that come and go read faster.
  int resident_walkers(const SkinnyTileShape& walking, const device::GemmSizes& sizes) const {
    const int64_t bytes = walking.shared_bytes(sizes.m, lanes(), sizes.k) + front_bytes(walking, sizes);
    return static_cast<int>(
        std::clamp<int64_t>(device().facts().shared_bytes / (bytes + 1024), 1, kWarpsInFront / walking.warps));
  }
  /// Shared memory of what is computed in front, or of what each warp has of the rows' reductions.
  int64_t front_bytes(const SkinnyTileShape& tile, const device::GemmSizes& sizes) const {
    if (front_) return front_->leaf.shape().numel() * size_of(unit_);
    return factor_ ? int64_t{4} * tile.warps * SkinnyTileShape::rows(sizes.m) : 0;
  }
  SkinnyTileShape skinny_tile(const TileChoice& choice, const device::GemmSizes& sizes) const {
    SkinnyTileShape tile = choice.skinny;
    const int multiprocessors = device().facts().multiprocessors;
    const auto tiles = [&](int groups) { return div_up(sizes.n / lanes(), 8 * groups); };
    if (front_) {  // two blocks fit, and beside them those of the next launch, whose weights can be on their way
      const int most = SkinnyTileShape::slot_bytes_beside(front_bytes(tile, sizes), device().facts().shared_bytes);
      tile.slot_bytes = most * 2 / 3;
    }
    // A few tiles that do not run together with the others take as long as all: two groups are added like one.
    const int together = std::max(kWarpsInFront / tile.warps, 1) * multiprocessors;
    if (front_ && tile.groups == 1 && lanes() == 1 && tiles(1) > together && tiles(2) <= together) tile.groups = 2;
    if (!front() || tile.rows(sizes.m) <= tile.warps) return tile;
    SkinnyTileShape walking = tile;
    walking.walkers = 1;
    walking.walkers = resident_walkers(walking, sizes) * multiprocessors;
    return tiles(tile.groups) > 4 * walking.walkers ? walking : tile;
  }
  CoreLaunch skinny_launch(const TileChoice& choice, const device::GemmSizes& sizes) const {
    const SkinnyTileShape tile = skinny_tile(choice, sizes);
    CoreLaunch launch = gemm_launch(tile, sizes, lanes());
    launch.shape.shared_bytes += static_cast<unsigned>(front_bytes(tile, sizes));
    return launch;
  }
  TunedCall skinny_call(const TileChoice& choice, const device::GemmSizes& sizes, const Expr& a, const Expr& b) {
    KernelParts text;
    Params params;
    params.set_sizes("GemmSizes", sizes);
    std::string arguments;
    const SkinnyTileShape tile = skinny_tile(choice, sizes);
    int resident = 1;
    if (tile.walkers)
      resident = resident_walkers(tile, sizes);
    else if (front() && tile.warps >= 8)  // whatever registers the compiler would like
      resident = (factor_ ? tile.warps_there(sizes.m) : kWarpsInFront) / tile.warps;
    if (front_) {
      params.reserve_shared(tile.shared_bytes(sizes.m, lanes(), sizes.k));
      params.keep_shared(front_->leaf);
      const ProgramOutput rows{front_->value, front_->leaf, unit_};
      const Shape& shape = front_->leaf.shape();
      ProgramSource program(std::array{rows}, {shape, shape.rank() - 1}, params, 8);
      text.functors = program.functor("Front");
      text.headers += program.includes();
      arguments = ", RowsInFront<Front, " + std::to_string(div_up(sizes.k, 32 * program.run())) + ">";
    }
    if (factor_) {
      add_reduction(*factor_, params, text);
      arguments = ", NoFront, Reduction";
    }
    text.functors += operand_source("A", a, a.shape().rank() - 1, params, text.headers) +
                     operand_source("Rows", b, b.shape().rank() - 1, params, text.headers) +
                     with_runs(in_runs_, stays(b)) +
                     epilogue_source(params, text.headers, 2, true, factor_ ? &*factor_ : nullptr);
    return core_call<device::GemmSizes>(choice, std::move(text), "gemm_skinny", tile.type(sizes.m, lanes(), sizes.k),
                                        resident, params, arguments);
  }

  /// `box_a`, `box_b`: of one tensor of the operand, from its address, its columns and the elements between its rows.
  template <class Sizes>
  TunedCall wgmma_call(const TileChoice& choice, const std::string& kernel, const char* type, Sizes sizes,
                       const Expr& a, const MakeRowsBox& box_a, const Expr& b, const MakeRowsBox& box_b) {
    KernelParts text;
    Params params;
    sizes.split.splits = choice.splits;
    if (counted_in_core()) sizes.count = counted_in_core()->sizes;
    params.set_sizes(type, sizes);
    text.functors = map_source("A", a, params, box_a) + map_source("Rows", b, params, box_b) +
                    with_runs(in_runs_, stays(b)) + epilogue_source(params, text.headers, 8);
    return core_call<Sizes>(choice, std::move(text), kernel + "_wgmma", choice.wgmma.type(), choice.wgmma.resident,
                            params);
  }

  bool can_count() const {
    const bool runs = choice_.core == Core::Wgmma || (choice_.core == Core::Mma && choice_.mma.has_runs(lanes()));
    return runs && product_.batch == 1 && lanes() == form_.lanes;
  }
  /// Tiles of rows in plain order, for a value seen as [samples, inner, channels].
  CountTiles tiles_of_rows(const Shape& seen) const {
    if (!can_count()) return {};
    const bool mma = choice_.core == Core::Mma;
    const int64_t rows = mma ? choice_.mma.m : choice_.wgmma.m;
    const int64_t of_warp = mma ? choice_.mma.m / choice_.mma.warps_m : wgmma_warp_rows();
    if (device().facts().batch_invariant() && seen[1] % rows) return {};  // samples would be cut up differently
    return {slots_of_rows(seen[0], seen[1], rows, of_warp), rows};
  }
  /// Rows that a warp adds up: where it has two pieces of the tile, the whole tile must lie in one sample.
  int64_t wgmma_warp_rows() const { return choice_.wgmma.m > 128 ? choice_.wgmma.m : 16; }
  const TileChoice& choice() const { return choice_; }

  std::optional<MatmulRoute> route_;  ///< by a library, where it could do all of it; before choose()

 private:
  template <class Sizes>
  TunedCall core_call(const TileChoice& choice, KernelParts text, const std::string& kernel, const std::string& tile,
                      int resident, const Params& params, const std::string& arguments = {}) {
    text.name = name() + " " + std::string(name_of(unit_)) + " " + tile +
                (choice.splits > 1 ? " x" + std::to_string(choice.splits) : "");
    text.headers = "#include \"tenon/backend/cuda/device/" + kernel + ".h\"\n" + text.headers;
    text.functors += "using Tile = " + tile + ";\n";
    text.kernel = "KERNEL(Tile::kThreads, " + std::to_string(resident) + ", Params, p) { " + kernel +
                  "<Tile, A, B, Epilogue" + arguments + ">(p); }\n";
    const CoreLaunch launch = core_launch(choice);
    return {KernelCall(device(), text, params, launch.shape), launch, offsetof(Sizes, split), offsetof(Sizes, count)};
  }

  // `Reduction`: what is reduced of operand A beside the product.
  void add_reduction(const RowFactor& f, Params& params, KernelParts& text) {
    const Expr x = input(*form_.graph, acc_name(0), DType::F32, f.rows.shape());
    const ProgramOutput part{reduced_part(f, x), {}, unit_};
    ProgramSource program(std::array{part}, {f.rows.shape(), f.rows.shape().rank() - 1}, params, 8);
    text.functors += program.functor("Part", 1);
    const NodeBody& body = node_body(f.reduction->type);
    text.headers += program.includes() + "#include \"" + body.header + "\"\n";
    text.functors += std::string("using Reduction = ReducesBeside<Part, nodes::") + body.name + ">;\n";
  }

  // What the core computes in front of the product.
  struct Front {
    Expr value, leaf;
  };
  std::optional<Front> front_;
  std::optional<RowFactor> factor_;  ///< of operand A

  // Constant weights as our cores read them, and in plain order.
  struct Weights {
    Expr leaf;
    PackedPiece piece;
  };
  Weights own_, in_order_;
  int64_t library_workspace_at_ = 0;
  ProductShape product_{};
  TileChoice choice_;
};

}  // namespace tenon::cuda
