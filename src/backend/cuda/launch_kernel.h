// What all launches of the CUDA backend share: leaves bound to memory, lets, statistics, and a list of steps. A
// skeleton's kernel decides in its constructor what it keeps and needs (so that all sizes are known before anything is
// allocated), makes its steps when it is bound, and runs them in order.
#pragma once
#include <map>
#include <optional>

#include "tenon/backend/backend.h"
#include "tenon/backend/bodies.h"
#include "tenon/backend/cuda/step.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {

class LaunchKernel : public Kernel {
 public:
  LaunchMemory memory() const { return {weight_bytes_, scratch_bytes_}; }
  /// Finds buffers, moves weights to the device, starts to compile. Throws Error(Model) for a weight of the wrong
  /// shape.
  void bind(const BufferTable& buffers, const WeightSource& weights);
  void run(void* scratch) final;
  void rebind(const BufferTable& buffers) final;
  std::string describe() const override;

 protected:
  LaunchKernel(std::shared_ptr<Device> device, const Launch& launch, Form form);

  /// Bytes at an offset of the scratch (of the memory that stays), a multiple of 256.
  int64_t reserve_scratch(int64_t bytes);
  int64_t reserve_weights(int64_t bytes);
  /// Gives `leaf` memory in the scratch.
  void place_in_scratch(const Expr& leaf);
  /// Gives the weights that `value` reads memory that stays, as they are.
  void keep_weights(const Expr& value);
  /// Gives `leaf` memory that stays, zero where nothing is written: `value`, which reads nothing but weights, is
  /// computed once and stored through `place`, a view of the leaf.
  void keep_computed(const Expr& leaf, const Expr& value, const Expr& place);
  /// The last call of a constructor.
  void reserve_statistics();

  /// Adds the launch's own steps, between the lets and the statistics.
  virtual void make_steps() = 0;
  void add(Step step) { add(std::move(step), {}, {}); }
  /// A step whose sizes point into memory that stays or into the scratch.
  void add(Step step, const std::vector<SizesPointer>& kept, std::vector<std::pair<size_t, int64_t>> scratch);
  /// Zeroes the leaf's memory in the scratch.
  void add_zero(const Expr& leaf);
  void* kept(int64_t offset) const { return weights_ + offset; }

  /// What the launch writes but for its statistics.
  std::vector<ProgramOutput> results() const;
  Device& device() const { return *device_; }
  const std::string& name() const { return name_; }

  Form form_;

 private:
  struct Action {
    std::optional<Step> step;
    Expr zero;  // or: the leaf to fill with zeros
    std::vector<std::pair<size_t, int64_t>> scratch_pointers;
  };
  struct Counted {
    Expr value, source;  // what is counted, and the leaf or value it is read from
    Expr sums, squares;  // leaves, or empty
    Shape shape;         // [samples, inner, channels]
    int64_t partials_at = 0, arrived_at = 0;
    int64_t chunk = 1, chunks = 1;
  };
  struct Computed {
    Expr leaf, value, place;
  };
  void make_lets();
  void count(const FormOutput& output);
  Expr stored_copy(const FormOutput& output);
  void make_groups_step(const Counted& counted);
  void upload(const WeightSource& weights, const Expr& leaf, void* dst);
  void compute_kept(const WeightSource& weights, const Computed& computed);
  void* address(const Expr& leaf) const;

  std::shared_ptr<Device> device_;
  std::string name_;
  int64_t scratch_bytes_ = 0, weight_bytes_ = 0;
  std::map<const Node*, int64_t> in_scratch_, in_weights_;
  std::vector<Expr> plain_weights_;
  std::vector<Computed> computed_;
  std::vector<ProgramOutput> copies_;  // of values that are counted but not stored
  std::vector<Counted> counted_;
  std::vector<Action> steps_;
  std::map<const Node*, void*> buffers_;
  std::shared_ptr<void> weight_memory_;
  std::byte* weights_ = nullptr;
  std::byte* scratch_ = nullptr;
  bool bound_ = false;  // the steps know their addresses, with this scratch
};

using LaunchBodies = Bodies<LaunchKernel, std::shared_ptr<Device>>;
using RegisterBody = LaunchBodies::Register;

/// Makes the kernel of a launch, unbound. Throws Error(Internal) for a launch that no skeleton can run.
inline std::unique_ptr<LaunchKernel> make_kernel(std::shared_ptr<Device> device, const Launch& launch) {
  return LaunchBodies::make(std::move(device), launch);
}

}  // namespace tenon::cuda
