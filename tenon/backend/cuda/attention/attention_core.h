// Cores of attention: ways to compute it on this device. They are asked in an order, and the first that takes a launch
// runs it. A core registers itself: its file is all there is to add.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "tenon/backend/cuda/products/core_launch.h"

namespace tenon::cuda {

class AttentionCore;
class AttentionKernel;
struct TunedCall;

/// What a core runs a launch with.
struct AttentionChoice {
  const AttentionCore* core = nullptr;
  std::string tile = {};  ///< its type in the kernel's text
  CoreLaunch launch = {};
  int splits = 1;                  ///< runs of keys that meet
  int box_keys = 0, resident = 1;  ///< of a core that reads boxes: their keys, and blocks a multiprocessor
};

class AttentionCore {
 public:
  virtual ~AttentionCore() = default;
  /// Behind "attention_" the name of its template in device/.
  virtual std::string_view name() const = 0;
  /// The value of TENON_CUDA_CORE that allows it: of the instructions that it multiplies with.
  virtual std::string_view asked_as() const { return name(); }
  /// Lower is asked first.
  virtual int preference() const = 0;
  /// True if launches that the cores asked for do not take may run on it.
  virtual bool stands_in() const { return false; }

  /// Its choice for the launch, or nothing.
  virtual std::optional<AttentionChoice> take(const AttentionKernel& kernel) const = 0;
  /// The kernel of a choice; of a core that reads boxes, if it says nothing else.
  virtual TunedCall call(AttentionKernel& kernel, const AttentionChoice& choice) const;
};

/// Adds a core to the registry for the life of the process: `const RegisterAttentionCore<DeepCore> kRegisteredDeep;`
void register_attention_core(const AttentionCore* core);
template <class T>
struct RegisterAttentionCore {
  T core;
  RegisterAttentionCore() { register_attention_core(&core); }
};
/// The first choice of those that TENON_CUDA_CORE allows, else of those that stand in. Error(Internal) if there is
/// none.
AttentionChoice choose_attention(const AttentionKernel& kernel);

}  // namespace tenon::cuda
