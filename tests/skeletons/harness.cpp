#include "skeletons/harness.h"

#include <cstring>
#include <random>

namespace tenon::launches {
namespace {

class Weights : public WeightSource {
 public:
  explicit Weights(const Tensors& tensors) {
    // One byte off, as a file may have it.
    for (const auto& [name, t] : tensors) {
      std::vector<std::byte>& copy = copies_[name];
      copy.resize(t.data.size() + 1);
      std::copy(t.data.begin(), t.data.end(), copy.begin() + 1);
      views_[name] = {t.dtype, t.shape, copy.data() + 1};
    }
  }
  HostView find(const std::string& name) const override {
    const auto it = views_.find(name);
    if (it == views_.end()) throw Error(ErrorKind::Model, name, "no such weight");
    return it->second;
  }

 private:
  std::map<std::string, std::vector<std::byte>> copies_;
  std::map<std::string, HostView> views_;
};

// Memory that starts on a line.
class Aligned {
 public:
  explicit Aligned(int64_t bytes) : memory_(static_cast<size_t>(bytes) + 64, std::byte{0xff}) {}
  std::byte* data() {
    return reinterpret_cast<std::byte*>(cpu::round_up(reinterpret_cast<int64_t>(memory_.data()), 64));
  }

 private:
  std::vector<std::byte> memory_;
};

}  // namespace

HostTensor random_tensor(DType t, const Shape& shape, unsigned seed, double spread) {
  std::mt19937 gen(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& v : values) v = normal(gen);
  return HostTensor::from(t, shape, values);
}

double Tolerance::at(double want) const {
  const double terms = std::sqrt(static_cast<double>(length));
  const double sum = 4 * unit_roundoff(DType::F32) * (terms + 8) * size;
  // An operand within the error of f32 of a tie may round the other way: one step of one term, of at most ten spreads.
  const double flip = arithmetic == DType::F32 ? 0 : 20 * unit_roundoff(arithmetic) * size / terms;
  const double least = stored == DType::E4M3 ? 0x1p-9 : stored == DType::F16 ? 0x1p-24 : 0;
  return 2 * unit_roundoff(stored) * std::abs(want) + sum + flip + least;
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
  l.outputs = std::move(outputs);
  const Choice choice = choose_skeleton(l);
  EXPECT_NE(choice.skeleton, nullptr) << choice.refusal.why;
  if (choice.skeleton) {
    EXPECT_EQ(choice.skeleton->name(), skeleton);
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

std::vector<Isa> LaunchTest::isas() {
  std::vector<Isa> out;
  for (Isa isa : {Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx})
    if (cpu::tile_ops(isa)) out.push_back(isa);
  return out;
}

Tensors LaunchTest::run(const Launch& l, Isa isa, int threads) {
  auto engine = std::make_shared<cpu::Engine>(threads, *cpu::tile_ops(isa));
  const std::unique_ptr<cpu::LaunchKernel> kernel = cpu::make_kernel(engine, l);
  std::map<std::string, Aligned> buffers;
  Tensors out;
  for (const Expr& e : operands_of(l)) {
    if (e.is<nodes::Param>()) continue;
    const HostTensor& t = tensors.at(e->attrs.text);
    auto [it, made] = buffers.try_emplace(e->attrs.text, static_cast<int64_t>(t.data.size()));
    std::copy(t.data.begin(), t.data.end(), it->second.data());
  }
  for (const Output& o : l.outputs) {
    out.emplace(o.buffer, HostTensor::zeros(o.value.dtype(), o.value.shape()));
    buffers.try_emplace(o.buffer, bytes_of(o.value.shape(), o.value.dtype()));
  }
  kernel->bind([&](const std::string& name) { return buffers.at(name).data(); }, Weights(tensors));
  Aligned scratch(kernel->memory().scratch);
  kernel->run(scratch.data());
  for (auto& [name, t] : out) std::memcpy(t.data.data(), buffers.at(name).data(), t.data.size());
  return out;
}

void LaunchTest::compare(const Output& o, const HostTensor& got, const std::vector<double>& want,
                         const Tolerance& tolerance, const std::string& where) {
  const std::vector<double> values = got.values();
  ASSERT_EQ(values.size(), want.size());
  int wrong = 0, other = 0;
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(values[i])) continue;
    const double diff = std::abs(values[i] - want[i]);
    other += values[i] != want[i];
    if (diff <= tolerance.at(want[i])) {
      worst = std::max(worst, diff);
      continue;
    }
    if (++wrong <= 3)
      ADD_FAILURE() << where << ": " << o.buffer << got.shape.str() << "[" << i << "] = " << values[i] << ", expected "
                    << want[i];
  }
  EXPECT_EQ(wrong, 0) << "of " << want.size() << " elements of " << o.buffer;
  if (got.dtype == DType::E4M3) {
    EXPECT_LE(other, static_cast<int>(want.size()) / 100 + 1) << "e4m3 values differ too often";
  }
}

void LaunchTest::expect(const Launch& l, const Tolerance& tolerance) {
  Oracle oracle(tensors);
  std::vector<std::vector<double>> want;
  for (const Output& o : l.outputs) want.push_back(oracle.eval(o.value));
  for (Isa isa : isas()) {
    const std::string where = cpu::tile_ops(isa)->name;
    const Tensors one = run(l, isa, 1), two = run(l, isa, 2);
    for (size_t i = 0; i < l.outputs.size(); ++i) {
      const Output& o = l.outputs[i];
      compare(o, one.at(o.buffer), want[i], tolerance, where);
      EXPECT_TRUE(one.at(o.buffer).data == two.at(o.buffer).data)
          << where << ": " << o.buffer << " depends on the number of threads";
    }
  }
}

}  // namespace tenon::launches
