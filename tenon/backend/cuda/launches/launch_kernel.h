// What all launches of the CUDA backend share: leaves bound to memory, lets, statistics, and a list of kernel calls. A
// skeleton's kernel decides what it needs and requests its weights in the constructor (so that all sizes are known
// before anything is allocated), makes its kernel calls when it is bound, and runs them in order.
#pragma once
#include <map>
#include <optional>
#include <set>

#include "tenon/backend/backend.h"
#include "tenon/backend/bodies.h"
#include "tenon/backend/cuda/launches/device_weights.h"
#include "tenon/backend/cuda/launches/kernel_call.h"
#include "tenon/backend/cuda/products/core_counts.h"
#include "tenon/backend/kernel.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {

class LaunchKernel : public Kernel {
 public:
  LaunchMemory memory() const final { return {kept_bytes_, scratch_bytes_}; }
  std::span<const WeightRequest> weights() const final { return requests_; }
  /// Resolves buffers and starts compilation.
  void bind(const BufferTable& buffers, std::span<void* const> weights, void* kept) final;
  void run(Stream& stream, void* scratch) final;
  void rebind(const BufferTable& buffers) final;
  int kernels() const final { return calls() + kernels_beside(); }
  std::string describe() const override;

 protected:
  LaunchKernel(std::shared_ptr<Device> device, const Launch& launch, Form form);

  /// Reserves bytes of scratch, or of the memory that the kernel keeps; returns their offset, a multiple of 256.
  int64_t reserve_scratch(int64_t bytes);
  int64_t reserve_kept(int64_t bytes);
  /// Gives `leaf` memory in scratch, or in the kept memory, which is zero-filled before the first run.
  void place_in_scratch(const Expr& leaf);
  void place_in_kept(const Expr& leaf);
  /// Requests the weights that `value` reads, unchanged.
  void ask_weights(const Expr& value);
  /// Requests memory for `leaf`, into which the writes, which read only weights, are made.
  void ask_packed(const Expr& leaf, const std::vector<PackedWrite>& writes);
  /// True if `value` reads only weights.
  bool stays(const Expr& value) const;
  /// Must come last in a constructor. `core`: the core's tiles for a value seen as [samples, inner, channels].
  void reserve_statistics(const std::function<CountTiles(const Shape& seen)>& core = {});

  /// Adds the launch's own kernel calls, between the lets and the statistics.
  virtual void make_calls() = 0;
  /// Number of those calls.
  virtual int own_calls() const = 0;
  /// Kernels of a library call after its first.
  virtual int kernels_beside() const { return 0; }
  /// Kernel calls of the launch.
  int calls() const;
  /// Results of kernel calls other than maps: those that read lets need them in memory.
  virtual std::vector<ProgramOutput> beside_maps() const = 0;
  /// Adds a kernel call that computes `outputs` over `domain`, and the lets they read if not added yet.
  void add_values(const std::string& call_name, std::span<const ProgramOutput> outputs, const Shape& domain);
  void add(KernelCall call) { add(std::move(call), {}, {}); }
  /// Adds a kernel call whose sizes contain pointers into the kept memory or into scratch.
  void add(KernelCall call, const std::vector<SizesPointer>& kept, std::vector<std::pair<size_t, int64_t>> scratch);
  void* kept(int64_t offset) const { return kept_ + offset; }

  /// What the launch writes, except its statistics.
  std::vector<ProgramOutput> results() const;

  /// A value whose moments are accumulated, and which statistics are wanted.
  struct Counted {
    Expr value;
    std::vector<Statistic> wanted;
    Shape shape;                         ///< [samples, inner, channels]
    bool in_core = false, whole = true;  ///< CountTiles
    device::CountSizes sizes;            ///< for counting in the core
    int tile_rows = 0;                   ///< of the core's tiles, if they straddle samples
    int64_t partials_at = 0, rows_at = 0, counters_at = 0;
    Expr source;              ///< else: the leaf or value that a separate call reads, in chunks of the inner axis
    int64_t blocks = 1;       ///< of that call, along the inner axis
    bool in_cluster = false;  ///< those blocks form a cluster
  };
  /// Turns counting in the core's epilogue on or off; off while a core is timed.
  void count_in_core(bool does) { counts_in_core_ = does; }
  /// What the core's epilogue counts, or null.
  const Counted* counted_in_core() const;
  Device& device() const { return *device_; }
  const std::string& name() const { return name_; }

  Form form_;

 private:
  struct PlacedCall {
    KernelCall call;
    std::vector<std::pair<size_t, int64_t>> scratch_pointers;
  };
  void permute_tables();
  std::vector<ProgramOutput> lets() const;
  bool lets_read_outputs() const;
  bool lets_stay_in_maps() const;
  void make_lets();
  bool core_can_count(const Counted& counted) const;
  void reserve_in_core(Counted& counted, const CountTiles& tiles);
  void reserve_chunks(Counted& counted);
  Expr stored_copy(const Counted& counted);
  void make_groups_call(const Counted& counted);
  void make_sums_call(const Counted& counted);
  void ask(const Expr& leaf, WeightRequest request);
  void* address(const Expr& leaf) const;

  std::shared_ptr<Device> device_;
  std::string name_;
  std::set<std::string> settled_;  // buffers: Launch::settled
  int64_t scratch_bytes_ = 0, kept_bytes_ = 0;
  struct OwnMemory {
    bool kept;   // or in scratch
    int64_t at;  // offset
  };
  std::map<const Node*, OwnMemory> in_own_;
  std::map<const Node*, size_t> in_weights_;  // index of the weight request
  std::vector<WeightRequest> requests_;
  std::vector<ProgramOutput> copies_;  // of values that are counted but not stored
  std::vector<Counted> counted_;
  std::vector<PlacedCall> calls_;
  std::map<const Node*, void*> buffers_;
  std::vector<void*> weights_;
  std::byte* kept_ = nullptr;
  std::byte* scratch_ = nullptr;
  bool lets_in_maps_ = false, counts_in_core_ = true;
  bool bound_ = false;  // the kernel calls hold their addresses, with this scratch
};

using LaunchBodies = Bodies<LaunchKernel, std::shared_ptr<Device>>;
using RegisterBody = LaunchBodies::Register;

/// The kernel of a launch over lists, whose argument holds the list (device/launches/list.h). Starts compilation.
/// Throws Error(Internal) for a launch that is more than a map over vectors (backend/list_form.h).
std::unique_ptr<ListKernel> make_list_kernel(std::shared_ptr<Device> device, const Launch& launch);

}  // namespace tenon::cuda
