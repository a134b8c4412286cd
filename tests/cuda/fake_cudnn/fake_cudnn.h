// A fake cuDNN without a GPU, for tests: a shared library with the exports that we use. It computes convolutions and
// attention on the CPU, element by element through the descriptors it is given; it checks them strictly, counts open
// objects, and fails on demand.
#pragma once
#include <cstddef>
#include <cstdint>

/// State and counters of the library, reached through its export `fake_cudnn_state`.
struct FakeCudnnState {
  // Set by tests.
  size_t version = 91900;
  int fail_create = 0, fail_heuristics = 0, fail_execute = 0;  ///< statuses
  int fail_plan_of = 0, fail_plan = 0;                         ///< an engine, and the status of preparing it
  bool offers = true;                                          ///< false: no engine for anything
  // Counted by the library.
  int handles = 0, objects = 0, heuristics = 0, plans = 0, executions = 0;
  int engine = 0;  ///< of the last execution
  uintptr_t stream = 0;
  bool described_device = false;  ///< by JSON
};

/// Its engines, in the order of its heuristics: first one engine for each unwanted note, then those that may run.
/// Attention has only kCompiled.
enum FakeEngine : int {
  kNondeterministic = 1,
  kWinograd = 2,
  kDownConverts = 3,
  kPlain = 4,
  kOther = 5,
  kCompiled = 9
};

extern "C" FakeCudnnState* fake_cudnn_state();
