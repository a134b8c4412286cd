#include "tenon/train/parameters.h"

#include "tenon/core/error.h"
#include "tenon/core/stop.h"

namespace tenon::train {

Parameters::Parameters(std::shared_ptr<Backend> backend, const std::shared_ptr<const WeightSource>& source,
                       const WeightShapes& shapes, size_t moments, bool averaged)
    : backend_(std::move(backend)),
      store_(std::make_shared<WeightStore>(backend_, source)),
      stream_(backend_->make_stream()),
      averaged_(averaged) {
  std::vector<float> values;
  const int64_t each = static_cast<int64_t>(2 + moments + averaged) * 4, needed = parameter_count(shapes) * each;
  TENON_CHECK(Memory, needed <= backend_->memory_available(), "training")
      << "masters, gradients, moments and averages take " << needed << " bytes, and " << backend_->memory_available()
      << " are free";
  for (const auto& [name, shape] : shapes) {
    check_stop("training");
    Parameter p{name, shape, nullptr, nullptr, nullptr, {}};
    p.master = backend_->allocate(p.bytes());
    p.grad = backend_->allocate(p.bytes());
    for (size_t m = 0; m < moments; ++m) p.moments[m] = backend_->allocate(p.bytes());
    const HostView view = source->find(name);
    TENON_CHECK(Model, view.shape.numel() == shape.numel() && is_float(view.dtype), name)
        << "expected floats " << shape.str() << ", found " << name_of(view.dtype) << view.shape.str();
    values.resize(static_cast<size_t>(p.count()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(load_element(view.dtype, view.data, static_cast<int64_t>(i)));
    set(p.master, values);
    if (averaged_) set(p.average = backend_->allocate(p.bytes()), values);
    source->done(name);
    all_.push_back(std::move(p));
  }
}

int64_t Parameters::count() const {
  int64_t n = 0;
  for (const Parameter& p : all_) n += p.count();
  return n;
}

int64_t Parameters::bytes() const {
  int64_t n = 0;
  for (const Parameter& p : all_)
    for (const std::shared_ptr<void>& m : {p.master, p.grad, p.average, p.moments[0], p.moments[1]})
      n += m ? p.bytes() : 0;
  return n;
}

void Parameters::publish() { publish(&Parameter::master); }

void Parameters::publish_averages() {
  TENON_CHECK(Internal, averaged_, "averages") << "are not kept";
  publish(&Parameter::average);
}

void Parameters::publish(std::shared_ptr<void> Parameter::*which) {
  std::vector<WeightStore::DeviceTensor> tensors;
  for (const Parameter& p : all_) tensors.push_back({p.name, DType::F32, p.shape, p.*which});
  stream_->synchronize();
  store_->update(tensors);
}

const std::map<std::string, std::shared_ptr<void>>& Parameters::fresh() {
  if (fresh_.empty())
    for (const Parameter& p : all_) fresh_[p.name] = backend_->allocate(p.bytes());
  return fresh_;
}

std::vector<float> Parameters::values(const std::shared_ptr<void>& memory, int64_t count) const {
  std::vector<float> out(static_cast<size_t>(count));
  backend_->copy_out(*stream_, out.data(), memory.get(), count * 4);
  return out;
}

void Parameters::set(const std::shared_ptr<void>& memory, std::span<const float> values) {
  backend_->copy_in(*stream_, memory.get(), values.data(), static_cast<int64_t>(values.size_bytes()));
}

}  // namespace tenon::train
