#include "tenon/backend/cuda/libraries/dnn_library.h"

#include <sstream>

namespace tenon::cuda {
namespace {

std::string text(const DnnConv& c) {
  std::ostringstream out;
  out << "conv2d " << name_of(c.type) << ' ' << c.batch << 'x' << c.height << 'x' << c.width << 'x' << c.channels
      << " -> " << c.out_height << 'x' << c.out_width << 'x' << c.outputs << " by " << c.kernel_h << 'x' << c.kernel_w
      << 'x' << c.stride << " pad";
  for (const int64_t pad : {c.pad_top, c.pad_left, c.pad_bottom, c.pad_right}) out << ' ' << pad;
  if (c.bias) out << " bias";
  return out.str();
}

std::string text(const DnnAttention& a) {
  std::ostringstream out;
  out << "attention " << name_of(a.type) << ' ' << a.batch << 'x' << a.heads << 'x' << a.queries << " over "
      << a.kv_heads << 'x' << a.keys << " by " << a.depth << " scale " << a.scale;
  for (const DnnHeads& h : {a.q, a.k, a.v, a.o}) out << " at " << h.batch << ' ' << h.head << ' ' << h.token;
  return out.str();
}

}  // namespace

std::string describe(const DnnProblem& problem) {
  return std::visit([](const auto& p) { return text(p); }, problem);
}

}  // namespace tenon::cuda
