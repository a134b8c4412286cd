// DeviceFacts::chosen_samples: a sample's results do not depend on the rest of the batch. Every launch of a UNet, alone
// and in a batch, on the emulator.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/models/unet.h"
#include "tenon/plan/plan.h"
#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/emulator.h"

namespace tenon::launches {
namespace {

constexpr int64_t kImages = 3, kImage = 2;  // in the batch, and the one examined

// Guided: the samples are the negative prompts of all images, then the positive ones.
Plan unet_plan(const Target& target, DType type, int64_t images, int64_t side) {
  UNetConfig c;
  c.levels = {{64, 2}, {128, 2, false, false}};
  c.layers_per_block = 1;
  c.context_dim = 64;
  c.norm_groups = 16;
  c.time_dim = 64;
  UNetShape s;
  s.batch = images;
  s.guided = true;
  s.height = s.width = side;
  s.timesteps = 2;
  Graph g;
  PlanOptions o;
  o.name = "unet";
  o.target = target;
  return make_plan(std::array{Result{"result", unet(g, c, s, {type, type})}}, o);
}

// One image's samples from a tensor of the batch; the tensor itself if it has no samples.
HostTensor of_image(const HostTensor& batch, const Shape& alone) {
  if (batch.shape == alone) return batch;
  HostTensor out = HostTensor::zeros(batch.dtype, alone);
  const size_t bytes = batch.data.size() / static_cast<size_t>(batch.shape[0]);
  for (int64_t i = 0; i < alone[0]; ++i)
    std::copy_n(batch.data.begin() + static_cast<int64_t>(bytes) * (i * kImages + kImage), bytes,
                out.data.begin() + static_cast<int64_t>(bytes) * i);
  return out;
}

// Names of the launches whose results differ.
std::vector<std::string> different(const std::shared_ptr<cuda::Device>& device, DType type, int64_t side) {
  const Target target = cuda::make_cuda_backend(device)->target();
  const Plan batch = unet_plan(target, type, kImages, side), alone = unet_plan(target, type, 1, side);
  std::vector<std::string> out;
  Tensors tensors;
  for (const Rate rate : {Rate::Prompt, Rate::Step}) {
    const std::vector<Launch>&all = batch.phase(rate)->launches, &one = alone.phase(rate)->launches;
    EXPECT_EQ(all.size(), one.size());
    for (size_t i = 0; i < std::min(all.size(), one.size()); ++i) {
      EXPECT_EQ(all[i].name, one[i].name);
      Tensors mine;
      const std::vector<Expr> read = operands_of(all[i]), read_alone = operands_of(one[i]);
      for (size_t j = 0; j < read.size(); ++j) {
        const std::string& name = read[j]->attrs.text;
        auto [found, missing] = tensors.try_emplace(name);
        if (missing) {
          found->second = random_tensor(read[j].dtype(), read[j].shape(), static_cast<unsigned>(tensors.size()), 0.1);
          if (read[j].dtype() == DType::I32) found->second = HostTensor::zeros(DType::I32, read[j].shape());
        }
        const auto same = std::ranges::find_if(read_alone, [&](const Expr& e) { return e->attrs.text == name; });
        if (same != read_alone.end()) mine.emplace(name, of_image(found->second, same->shape()));
      }
      const Tensors got = run_on(device, all[i], tensors), want = run_on(device, one[i], mine);
      for (const auto& [name, tensor] : want)
        if (of_image(got.at(name), tensor.shape).data != tensor.data) {
          out.push_back(all[i].skeleton + " " + all[i].name + ": " + name);
        }
      tensors.insert(got.begin(), got.end());
    }
  }
  return out;
}

TEST(BatchInvariant, EveryLaunchOfAUNet) {
  const auto invariant = std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.batch_invariant = true});
  for (const int64_t side : {4, 12, 20})
    EXPECT_EQ(different(invariant, DType::F16, side), std::vector<std::string>{}) << side;
  const auto plain = std::make_shared<cuda::test::Emulator>();
  EXPECT_NE(different(plain, DType::F16, 20), std::vector<std::string>{}) << "what is there to fix?";
}

}  // namespace
}  // namespace tenon::launches
