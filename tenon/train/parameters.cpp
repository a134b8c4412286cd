#include "tenon/train/parameters.h"

#include <utility>

#include "tenon/backend/arena.h"
#include "tenon/core/error.h"
#include "tenon/core/not_null.h"
#include "tenon/core/stop.h"

namespace tenon::train {

void check_learns(const Backend& backend) {
  TENON_CHECK(Usage, backend.computes(), "device") << backend.name() << " computes nothing, so it cannot train";
}

Parameters::Parameters(std::shared_ptr<Backend> backend, const std::shared_ptr<const WeightSource>& source,
                       const WeightShapes& shapes, size_t moments, bool averaged)
    : backend_(not_null(std::move(backend), "backend")),
      store_(std::make_shared<WeightStore>(backend_, not_null(source, "weights"))),
      stream_(backend_->make_stream()),
      averaged_(averaged) {
  check_learns(*backend_);
  TENON_CHECK(Usage, moments <= kMaxMoments, "moments") << moments << ": expected at most " << kMaxMoments;
  TENON_CHECK(Usage, !shapes.contains("__metadata__"), "parameters")
      << "expected names of tensors, found '__metadata__', which a safetensors file cannot hold as one";
  std::vector<float> values;
  const int64_t needed = bytes_needed(shapes, moments, averaged);
  TENON_CHECK(Memory, needed <= backend_->memory_available(), "training")
      << "masters, moments and averages need " << needed << " bytes, but " << backend_->memory_available()
      << " are free";
  for (const auto& [name, shape] : shapes) all_.push_back({name, shape, nullptr, nullptr, {}, nullptr});
  const auto take = [&](const auto& give) {
    const std::vector<std::shared_ptr<void>> memory = allocate();
    for (size_t i = 0; i < memory.size(); ++i) give(all_[i], memory[i]);
  };
  take([](Parameter& p, const std::shared_ptr<void>& at) { p.master = at; });
  if (averaged_) take([](Parameter& p, const std::shared_ptr<void>& at) { p.average = at; });
  for (size_t m = 0; m < moments; ++m) take([m](Parameter& p, const std::shared_ptr<void>& at) { p.moments[m] = at; });
  for (const Parameter& p : all_) {
    check_stop("training");
    const HostView view = source->find(p.name);
    TENON_CHECK(Model, view.shape.numel() == p.count() && is_float(view.dtype), p.name)
        << "expected floats " << p.shape.str() << ", found " << name_of(view.dtype) << view.shape.str();
    values.resize(static_cast<size_t>(p.count()));
    load_floats(view.dtype, view.data, values);
    set(p.master, values);
    if (averaged_) set(p.average, values);
    source->done(p.name);
  }
}

int64_t Parameters::bytes_needed(const WeightShapes& shapes, size_t moments, bool averaged) {
  return parameter_count(shapes) * static_cast<int64_t>(1 + moments + averaged) * 4;
}

// Allocates memory for all in one piece: a device rounds every allocation up, by up to 2 MiB per matrix.
std::vector<std::shared_ptr<void>> Parameters::allocate() const {
  std::vector<int64_t> places;
  int64_t bytes = 0;
  for (const Parameter& p : all_) places.push_back(std::exchange(bytes, bytes + Arena::aligned(p.bytes())));
  const std::shared_ptr<void> memory = backend_->allocate(bytes);
  std::vector<std::shared_ptr<void>> out;
  for (const int64_t at : places) out.emplace_back(memory, static_cast<std::byte*>(memory.get()) + at);
  return out;
}

int64_t Parameters::count() const {
  int64_t n = 0;
  for (const Parameter& p : all_) n += p.count();
  return n;
}

int64_t Parameters::bytes() const {
  int64_t n = 0;
  for (const Parameter& p : all_)
    for (const std::shared_ptr<void>& m : {p.master, p.average, p.moments[0], p.moments[1]}) n += m ? p.bytes() : 0;
  return n + (sums_.empty() ? 0 : 4 * count());
}

void Parameters::publish() { publish(&Parameter::master); }

void Parameters::with_averages(const std::function<void()>& use) {
  if (!averaged_) return use();
  try {
    publish(&Parameter::average);
    use();
  } catch (...) {
    publish();
    throw;
  }
  publish();
}

void Parameters::publish(std::shared_ptr<void> Parameter::*which) {
  std::vector<WeightStore::DeviceTensor> tensors;
  for (const Parameter& p : all_) tensors.push_back({p.name, DType::F32, p.shape, p.*which});
  stream_->synchronize();
  const StopShield whole;  // networks must not read some weights of either kind
  store_->update(tensors);
}

const std::vector<std::shared_ptr<void>>& Parameters::sums() {
  if (sums_.empty()) sums_ = allocate();
  return sums_;
}

void Parameters::set_gradients(const std::vector<std::shared_ptr<void>>& at) {
  TENON_CHECK(Internal, at.size() == all_.size(), "gradients") << at.size() << " for " << all_.size() << " parameters";
  for (size_t i = 0; i < at.size(); ++i) all_[i].grad = at[i];
}

std::vector<float> Parameters::values(const std::shared_ptr<void>& memory, int64_t count) const {
  std::vector<float> out(static_cast<size_t>(count));
  if (count > 0) static_cast<void>(not_null(memory.get(), "memory of a parameter"));
  backend_->copy_out(*stream_, out.data(), memory.get(), count * 4);
  return out;
}

void Parameters::set(const std::shared_ptr<void>& memory, std::span<const float> values) {
  if (!values.empty()) static_cast<void>(not_null(memory.get(), "memory of a parameter"));
  backend_->copy_in(*stream_, memory.get(), values.data(), static_cast<int64_t>(values.size_bytes()));
}

}  // namespace tenon::train
