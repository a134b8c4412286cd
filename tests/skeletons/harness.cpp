#include "tests/skeletons/harness.h"

#include <random>

#include "tenon/plan/precision.h"
#include "tests/support/close.h"

namespace tenon::launches {

Weights::Weights(const Tensors& tensors) {
  for (const auto& [name, t] : tensors) {
    std::vector<std::byte>& copy = copies_[name];
    copy.resize(t.data.size() + 1);
    std::copy(t.data.begin(), t.data.end(), copy.begin() + 1);
    views_[name] = {t.dtype, t.shape, copy.data() + 1};
  }
}

HostView Weights::find(const std::string& name) const {
  const auto it = views_.find(name);
  if (it == views_.end()) throw Error(ErrorKind::Model, name, "no such weight");
  return it->second;
}

std::vector<std::shared_ptr<void>> weights_of(const Kernel& kernel, Stream& stream, const Tensors& tensors,
                                              const std::function<std::shared_ptr<void>(int64_t)>& allocate) {
  const Weights source(tensors);
  const auto param = [&source](const std::string& name) {
    const HostView view = source.find(name);
    return ParamView{view.dtype, view.shape, view.data};
  };
  return make_apart(kernel.weights(), {stream, param}, allocate);
}

std::vector<void*> addresses_of(const std::vector<std::shared_ptr<void>>& memory) {
  std::vector<void*> out;
  for (const auto& m : memory) out.push_back(m.get());
  return out;
}

HostTensor random_tensor(DType t, const Shape& shape, unsigned seed, double spread) {
  std::mt19937 gen(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& v : values) v = normal(gen);
  return HostTensor::from(t, shape, values);
}

Expr LaunchTest::weight(const std::string& name, DType t, const Shape& shape) {
  const int64_t terms = shape.rank() == 4 ? shape[1] * shape[2] * shape[3] : shape[-1];
  tensors.emplace(name, random_tensor(t, shape, static_cast<unsigned>(tensors.size()) + 77,
                                      1 / std::sqrt(static_cast<double>(terms))));
  return param(g, name, t, shape);
}

Launch LaunchTest::launch(const std::string& skeleton, std::vector<Output> outputs) {
  Launch l;
  l.name = testing::UnitTest::GetInstance()->current_test_info()->name();
  std::vector<Expr> values;
  for (const Output& o : outputs) values.push_back(o.value);
  values = set_precision(g, values, {});
  l.outputs = std::move(outputs);
  for (size_t i = 0; i < values.size(); ++i) l.outputs[i].value = values[i];
  const Refusal refusal = choose_skeleton(l, std::make_shared<Graph>());
  EXPECT_TRUE(l.form) << refusal.why;
  if (l.form) {
    EXPECT_EQ(l.skeleton, skeleton);
  }
  l.skeleton = skeleton;
  fill(l);
  return l;
}

void LaunchTest::fill(const Launch& l) {
  for (const Expr& e : operands_of(l)) {
    if (tensors.contains(e->attrs.text)) continue;
    const unsigned seed = static_cast<unsigned>(tensors.size()) + 5;
    tensors.emplace(e->attrs.text, random_tensor(e.dtype(), e.shape(), seed));
  }
}

void LaunchTest::compare(const Output& o, const HostTensor& got, const std::vector<double>& want,
                         const Rounding& rounding, const std::string& where, NaN nan) {
  Rounding own = rounding;
  own.stored = got.dtype;  // of this one of several outputs
  EXPECT_TRUE(agreement(tenon::compare(got, o.value.shape(), want, own.tolerance(), nan))) << where << ": " << o.buffer;
  if (got.dtype == DType::E4M3) {
    const Comparison bits = tenon::compare(got, o.value.shape(), want, Tolerance{}, nan);
    EXPECT_LE(bits.different(), bits.compared() / 100 + 1) << "e4m3 values differ too often";
  }
}

void LaunchTest::expect(const Launch& l, const Rounding& rounding, NaN nan) {
  Oracle oracle(tensors);
  std::vector<std::vector<double>> want;
  for (const Output& o : l.outputs) want.push_back(oracle.eval(o.value));
  std::map<std::string, Tensors> first;
  const size_t nodes = l.form->graph->size();
  for (const Runner& runner : runners()) {
    const Tensors got = runner.run(l, tensors);
    const auto [same, fresh] = first.emplace(runner.same, got);
    for (size_t i = 0; i < l.outputs.size(); ++i) {
      const Output& o = l.outputs[i];
      if (fresh) compare(o, got.at(o.buffer), want[i], rounding, runner.name, nan);
      EXPECT_TRUE(got.at(o.buffer).data == same->second.at(o.buffer).data)
          << runner.name << ": " << o.buffer << " is not what another run of " << runner.same << " gave";
    }
  }
  EXPECT_EQ(l.form->graph->size(), nodes) << "a kernel added to a form that others read";
}

}  // namespace tenon::launches
