// The state that training changes, in a backend's memory: f32 masters of a model's weights and an optimizer's moments;
// where their gradients are; and the weight store that networks read, which follows the masters.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/optim/optimizer.h"
#include "tenon/runtime/weight_store.h"

namespace tenon::train {

/// One trained tensor; each memory holds shape.numel() f32 numbers.
struct Parameter {
  std::string name;
  Shape shape;
  std::shared_ptr<void> master, average;  ///< average: null if none is kept
  std::array<std::shared_ptr<void>, kMaxMoments> moments;
  std::shared_ptr<void> grad;  ///< null before there are any; see Parameters::set_gradients

  int64_t count() const { return shape.numel(); }
  int64_t bytes() const { return count() * 4; }
};

/// Error(Usage) for a backend that does not compute.
void check_learns(const Backend& backend);

class Parameters {
 public:
  /// Masters of the tensors `shapes`, with values from `source` in any floating-point type. Networks read them through
  /// `store()`, rounded from the masters to the type that their plans ask for. Error(Model), Error(Memory). `averaged`:
  /// keep a moving average of each, which starts as its master.
  Parameters(std::shared_ptr<Backend> backend, const std::shared_ptr<const WeightSource>& source,
             const WeightShapes& shapes, size_t moments, bool averaged = false);

  /// Bytes of masters, moments and averages that the constructor would allocate.
  static int64_t bytes_needed(const WeightShapes& shapes, size_t moments, bool averaged);

  const std::shared_ptr<Backend>& backend() const { return backend_; }
  const std::shared_ptr<WeightStore>& store() const { return store_; }
  const std::shared_ptr<Stream>& stream() const { return stream_; }
  const std::vector<Parameter>& all() const { return all_; }
  int64_t count() const;
  bool averaged() const { return averaged_; }
  /// Bytes of masters, moments, averages and sums.
  int64_t bytes() const;

  /// Makes the store return the current masters. No network may be running.
  void publish();
  /// Calls `use` while the store returns the averages, if they are kept. Afterwards it returns the masters again, even
  /// if `use` throws.
  void with_averages(const std::function<void()>& use);
  /// Memory for gradients that must outlast a run, such as a sum over several, in the order of all(); allocated on the
  /// first call. Error(Memory).
  const std::vector<std::shared_ptr<void>>& sums();
  /// Sets where a step's gradients are, in the order of all(). Those of a single run are in its plan's arena: read them
  /// before another plan uses that memory.
  void set_gradients(const std::vector<std::shared_ptr<void>>& at);
  /// Copies f32 values to and from the host; `set` does not publish.
  std::vector<float> values(const std::shared_ptr<void>& memory, int64_t count) const;
  void set(const std::shared_ptr<void>& memory, std::span<const float> values);

 private:
  void publish(std::shared_ptr<void> Parameter::*which);
  std::vector<std::shared_ptr<void>> allocate() const;

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<WeightStore> store_;
  std::shared_ptr<Stream> stream_;
  bool averaged_;
  std::vector<Parameter> all_;  // in bytewise order of names
  std::vector<std::shared_ptr<void>> sums_;
};

}  // namespace tenon::train
