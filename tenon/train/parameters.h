// What training changes: f32 masters of a model's weights, their gradients and an optimizer's moments, in a backend's
// memory, and the weight store that networks read, which follows the masters.
#pragma once
#include <array>
#include <map>
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
  std::shared_ptr<void> master, grad;
  std::array<std::shared_ptr<void>, kMostMoments> moments;

  int64_t count() const { return shape.numel(); }
  int64_t bytes() const { return count() * 4; }
};

class Parameters {
 public:
  /// Masters of the tensors `shapes`, from `source`, whose values may be of any type of float. Networks read them by
  /// `store()`, in whatever type their plans ask for: rounded from the masters. Error(Model), Error(Memory).
  Parameters(std::shared_ptr<Backend> backend, const std::shared_ptr<const WeightSource>& source,
             const WeightShapes& shapes, size_t moments);

  const std::shared_ptr<Backend>& backend() const { return backend_; }
  const std::shared_ptr<WeightStore>& store() const { return store_; }
  const std::shared_ptr<Stream>& stream() const { return stream_; }
  const std::vector<Parameter>& all() const { return all_; }
  int64_t count() const;
  /// Bytes of masters, gradients and moments.
  int64_t bytes() const;

  /// The store has what the masters are from now on. Nobody may run meanwhile.
  void publish();
  /// f32 values to and from the host; `set` publishes nothing.
  std::vector<float> values(const std::shared_ptr<void>& memory, int64_t count) const;
  void set(const std::shared_ptr<void>& memory, std::span<const float> values);

 private:
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<WeightStore> store_;
  std::shared_ptr<Stream> stream_;
  std::vector<Parameter> all_;  // in bytewise order of their names
};

}  // namespace tenon::train
