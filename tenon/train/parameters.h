// What training changes: f32 masters of a model's weights and an optimizer's moments, in a backend's memory, where
// their gradients are, and the weight store that networks read, which follows the masters.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/optim/optimizer.h"
#include "tenon/runtime/weight_store.h"

namespace tenon::train {

/// One trained tensor; all memory is f32 and holds shape.numel() numbers.
struct Parameter {
  std::string name;
  Shape shape;
  std::shared_ptr<void> master, average;  ///< average: null where none is kept
  std::array<std::shared_ptr<void>, kMostMoments> moments;
  std::shared_ptr<void> grad;  ///< null before there are any; see Parameters::set_gradients

  int64_t count() const { return shape.numel(); }
  int64_t bytes() const { return count() * 4; }
};

/// Error(Usage) for a backend that computes nothing.
void check_learns(const Backend& backend);

class Parameters {
 public:
  /// Masters of the tensors `shapes`, from `source`, whose values may be of any type of float. Networks read them by
  /// `store()`, in whatever type their plans ask for: rounded from the masters. Error(Model), Error(Memory).
  /// `averaged`: there is a moving average of each, which begins as its master.
  Parameters(std::shared_ptr<Backend> backend, const std::shared_ptr<const WeightSource>& source,
             const WeightShapes& shapes, size_t moments, bool averaged = false);

  const std::shared_ptr<Backend>& backend() const { return backend_; }
  const std::shared_ptr<WeightStore>& store() const { return store_; }
  const std::shared_ptr<Stream>& stream() const { return stream_; }
  const std::vector<Parameter>& all() const { return all_; }
  int64_t count() const;
  bool averaged() const { return averaged_; }
  /// Bytes of masters, moments, averages and sums.
  int64_t bytes() const;

  /// The store has what the masters are from now on. Nobody may run meanwhile.
  void publish();
  /// The store has what the averages are, until publish().
  void publish_averages();
  /// Memory for gradients that outlasts a run, such as the sum of several, in the order of all(): taken when it is
  /// first asked for. Error(Memory).
  const std::vector<std::shared_ptr<void>>& sums();
  /// From now on a step's gradients are here, in the order of all(). Those of a single run lie among the values of its
  /// plan: they are read before another plan has that memory.
  void set_gradients(const std::vector<std::shared_ptr<void>>& at);
  /// f32 values to and from the host; `set` publishes nothing.
  std::vector<float> values(const std::shared_ptr<void>& memory, int64_t count) const;
  void set(const std::shared_ptr<void>& memory, std::span<const float> values);

 private:
  void publish(std::shared_ptr<void> Parameter::*which);
  std::vector<std::shared_ptr<void>> allocate() const;

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<WeightStore> store_;
  std::shared_ptr<Stream> stream_;
  bool averaged_;
  std::vector<Parameter> all_;  // in bytewise order of their names
  std::vector<std::shared_ptr<void>> sums_;
};

}  // namespace tenon::train
