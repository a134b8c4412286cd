#include "apps/cli/sample_inputs.h"

#include <algorithm>

#include "tenon/io/random.h"

namespace tenon::cli {
namespace {
constexpr uint64_t kSeed = 7;
constexpr int64_t kTokenRange = 256;  // smaller than every vocabulary

// Tokens per sequence that a language model's plan takes at once.
int64_t tokens_of(const Plan& plan) {
  for (const Buffer& b : plan.buffers)
    if (b.name == "tokens") return b.shape[-1];
  return 1;
}

// Number of tokens already in a language model's cache: half of it in front of a single token, none in front of a
// prompt.
float position_in(const Plan& plan) {
  int64_t rows = 0, batch = 1;
  for (const Buffer& b : plan.buffers) {
    if (b.role == BufferRole::State) rows = b.shape[0];
    if (b.name == "position") batch = b.shape.numel();
  }
  const int64_t capacity = rows / batch;
  return tokens_of(plan) > 1 ? 0.0F : static_cast<float>(std::max<int64_t>(capacity / 2 - 1, 0));
}

HostTensor sample_input(const Plan& plan, const Buffer& buffer) {
  const auto count = static_cast<size_t>(buffer.shape.numel());
  std::vector<float> values(count);
  if (is_float(buffer.dtype)) {
    if (buffer.name == "timesteps") {
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(999 - 999 * i / std::max<size_t>(count, 1));
    } else if (buffer.name == "rule") {  // draw at temperature 1, without filters
      for (size_t i = 0; i < count; ++i) values[i] = i % 2 ? 0.0F : 1.0F;
    } else {
      TorchGenerator(kSeed).randn(values);
    }
  } else if (buffer.name == "position") {
    std::ranges::fill(values, position_in(plan));
  } else if (buffer.name == "row") {  // the last token of each prompt
    const auto tokens = static_cast<size_t>(tokens_of(plan));
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i + 1) * tokens - 1);
  } else if (buffer.name == "pages") {  // each row's pages of the cache, in reverse order
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(count - 1 - i);
  } else if (buffer.shape.rank() > 0) {
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<int64_t>(i * 37 + 11) % kTokenRange);
  }
  return HostTensor::from(buffer.dtype, buffer.shape, std::span<const float>(values));
}
}  // namespace

void set_sample_inputs(Executable& executable) {
  for (const Buffer& b : executable.plan().buffers) {
    if (b.role != BufferRole::Input) continue;
    const HostTensor value = sample_input(executable.plan(), b);
    executable.set(b.name, HostView{value.dtype, value.shape, value.data.data()});
  }
}

std::optional<int64_t> sample_keys(const Plan& plan) {
  for (const Buffer& b : plan.buffers)
    if (b.role == BufferRole::Input && b.name == "position")
      return static_cast<int64_t>(position_in(plan)) + tokens_of(plan);
  return {};
}

}  // namespace tenon::cli
