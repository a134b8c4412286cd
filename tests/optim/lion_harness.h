// Lists of tensors in guarded memory, and a plain Lion to check steps against.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tenon/core/dtype.h"
#include "tenon/optim/lion.h"
#include "tests/optim/backends.h"

namespace tenon::optim {

/// One step of one element, rounded where Lion specifies it: f32 after every operation.
struct Element {
  float p, m;
};
inline Element plain_step(float p, float m, float g, const LionOptions& o) {
  const auto number = [](double x) { return static_cast<float>(x); };
  const double sign = o.maximize ? -1 : 1;
  // Through memory, so that the compiler cannot fuse a product with a sum.
  volatile float a = m * number(o.beta1), b = g * number(sign * (1 - o.beta1));
  volatile float u = a + b;
  const float s = u > 0 ? 1.0f : u < 0 ? -1.0f : u + 0.0f;
  volatile float kept = p * number(1 - o.lr * o.weight_decay), step = s * number(o.lr);
  volatile float c = m * number(o.beta2), d = g * number(sign * (1 - o.beta2));
  return {kept - step, c + d};
}

/// Tensors of any types in one allocation of a backend, each between guards and offset by whole elements.
class TensorList {
 public:
  TensorList(std::shared_ptr<Backend> backend, const LionTypes& types, std::vector<int64_t> counts, int offset = 0)
      : backend_(std::move(backend)), types_(types), counts_(std::move(counts)) {
    for (int role = 0; role < 4; ++role)
      for (const int64_t n : counts_) {
        starts_[role].push_back(bytes_ + kGuard + offset * size_of(type(role)));
        bytes_ += (kGuard + (n + offset) * size_of(type(role)) + 63) / 64 * 64;
      }
    bytes_ += kGuard;
    memory_ = backend_->allocate(bytes_);
    host_.assign(static_cast<size_t>(bytes_), std::byte{0xa5});
  }

  enum Role { Param, ExpAvg, Grad, Master };
  DType type(int role) const {
    return role == Param ? types_.param : role == ExpAvg ? types_.exp_avg : role == Grad ? types_.grad : DType::F32;
  }
  size_t size() const { return counts_.size(); }
  int64_t count(size_t tensor) const { return counts_[tensor]; }
  float get(Role role, size_t tensor, int64_t i) const {
    return static_cast<float>(load_element(type(role), host_.data() + starts_[role][tensor], i));
  }
  void set(Role role, size_t tensor, int64_t i, double value) {
    store_element(type(role), host_.data() + starts_[role][tensor], i, value);
  }
  /// Normally distributed numbers everywhere; the master copy equals the parameter.
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (size_t t = 0; t < size(); ++t)
      for (int64_t i = 0; i < counts_[t]; ++i) {
        for (const Role role : {Param, ExpAvg, Grad}) set(role, t, i, static_cast<double>(normal(random)));
        set(Master, t, i, static_cast<double>(get(Param, t, i)));
      }
  }

  /// Moves the tensors to the backend, steps, and moves everything back.
  void step(Lion& lion, const LionOptions& options) {
    upload();
    lion.step(*stream_, tensors(), options);
    download();
  }
  Stream& stream() const { return *stream_; }
  void upload() { backend_->copy_in(*stream_, memory_.get(), host_.data(), bytes_); }
  void download() { backend_->copy_out(*stream_, host_.data(), memory_.get(), bytes_); }
  std::vector<LionTensor> tensors() const {
    std::vector<LionTensor> out;
    std::byte* base = static_cast<std::byte*>(memory_.get());
    for (size_t t = 0; t < size(); ++t) {
      const auto at = [&](Role role) { return counts_[t] ? base + starts_[role][t] : nullptr; };
      out.push_back({at(Param), at(ExpAvg), at(Grad), types_.master ? at(Master) : nullptr, counts_[t]});
    }
    return out;
  }
  const std::vector<std::byte>& bytes() const { return host_; }
  /// Whether the bytes outside elements are unchanged.
  bool guards_stand() const {
    std::vector<bool> owned(host_.size());
    for (int role = 0; role < 4; ++role)
      for (size_t t = 0; t < size(); ++t)
        for (int64_t i = 0; i < counts_[t] * size_of(type(role)); ++i)
          owned[static_cast<size_t>(starts_[role][t] + i)] = true;
    for (size_t i = 0; i < host_.size(); ++i)
      if (!owned[i] && host_[i] != std::byte{0xa5}) return false;
    return true;
  }

 private:
  static constexpr int64_t kGuard = 64;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Stream> stream_ = backend_->make_stream();
  LionTypes types_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> starts_[4];
  int64_t bytes_ = 0;
  std::shared_ptr<void> memory_;
  std::vector<std::byte> host_;
};

/// EXPECTs `after` to have the bits of the plain step from `before`.
inline void expect_plain_step(const TensorList& before, const TensorList& after, const LionTypes& types,
                              const LionOptions& options, const std::string& where) {
  int wrong = 0;
  const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (size_t t = 0; t < before.size(); ++t)
    for (int64_t i = 0; i < before.count(t) && wrong < 5; ++i) {
      const float p = before.get(types.master ? TensorList::Master : TensorList::Param, t, i);
      const Element want =
          plain_step(p, before.get(TensorList::ExpAvg, t, i), before.get(TensorList::Grad, t, i), options);
      const auto stored = [](DType type, float x) {
        return static_cast<float>(round_to(type, static_cast<double>(x)));
      };
      const bool good = same(after.get(TensorList::Param, t, i), stored(types.param, want.p)) &&
                        same(after.get(TensorList::ExpAvg, t, i), stored(types.exp_avg, want.m)) &&
                        (!types.master || same(after.get(TensorList::Master, t, i), want.p));
      EXPECT_TRUE(good) << where << ": tensor " << t << ", element " << i << ": p "
                        << after.get(TensorList::Param, t, i) << " for " << want.p << ", m "
                        << after.get(TensorList::ExpAvg, t, i) << " for " << want.m << (good ? 0 : ++wrong);
    }
  EXPECT_TRUE(after.guards_stand()) << where << ": it writes outside its tensors";
}

}  // namespace tenon::optim
