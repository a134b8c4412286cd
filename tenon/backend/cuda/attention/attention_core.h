// Cores of attention: ways to compute it on this device. They are asked in order of preference, and the first that
// takes a launch runs it. A core registers itself: adding one takes only its file.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "tenon/backend/cuda/products/core_call.h"

namespace tenon::cuda {

class AttentionCore;
class AttentionKernel;
struct TunedCall;

/// A core's choice for a launch.
struct AttentionChoice {
  const AttentionCore* core = nullptr;
  std::string tile = {};  ///< the tile's type in the kernel's source
  CallNeeds needs = {};
  int splits = 1;                  ///< ranges of keys whose results are combined (split-KV)
  int box_keys = 0, resident = 1;  ///< of a core that reads boxes: keys per box, and blocks per multiprocessor
};

class AttentionCore {
 public:
  virtual ~AttentionCore() = default;
  /// Name of its template in device/attention/, without the leading "attention_".
  virtual std::string_view name() const = 0;
  /// The value of TENON_CUDA_CORE that allows it, named after the instructions that it multiplies with.
  virtual std::string_view asked_as() const { return name(); }
  /// Lower is asked first.
  virtual int preference() const = 0;
  /// True if it may run launches that none of the allowed cores takes.
  virtual bool stands_in() const { return false; }

  /// Its choice for the launch, or empty if it does not take it.
  virtual std::optional<AttentionChoice> take(const AttentionKernel& kernel) const = 0;
  /// The kernel of a choice. By default, the core's template over boxes, or over rows if the choice has no boxes.
  virtual TunedCall call(AttentionKernel& kernel, const AttentionChoice& choice) const;
};

/// Adds a core to the registry for the life of the process: `const RegisterAttentionCore<DeepCore> kRegisteredDeep;`
void register_attention_core(const AttentionCore* core);
template <class T>
struct RegisterAttentionCore {
  T core;
  RegisterAttentionCore() { register_attention_core(&core); }
};
/// The first choice among the cores that TENON_CUDA_CORE allows, else among those that stand in. Throws Error(Internal)
/// if there is none.
AttentionChoice choose_attention(const AttentionKernel& kernel);

}  // namespace tenon::cuda
