// A fake driver without a GPU, for tests: a shared library with the exports that we use. It counts open objects and
// fails on demand.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>

/// State and counters of the library, reached through its export `fake_driver_state`.
struct FakeDriverState {
  // Set by tests.
  int init_result = 0, version = 13000, devices = 1;
  int major = 9, minor = 0;
  size_t memory = size_t{1} << 30;
  int fail_launch = 0;    ///< result of the next launch
  int fault_at_wait = 0;  ///< result of every call from the next wait on: a kernel's fault
  int fail_instantiate = 0, fail_load = 0, fail_fill = 0;
  // Counted by the library.
  size_t used = 0;
  int allocations = 0, modules = 0, graphs = 0, graph_execs = 0, streams = 0, events = 0, contexts = 0;
  int launches = 0, graph_launches = 0, recorded = 0;
  size_t pinned = 0, max_pinned = 0;    ///< bytes of host memory
  size_t refuse_pinned = 0;             ///< allocations of at least this many bytes are refused; 0: none
  std::set<const void*> pinned_memory;  ///< what the driver knows of it
  int waits = 0;                        ///< for a stream
  int recorded_copies = 0;              ///< on the stream beside the recording one
  bool capturing = false, faulted = false;
  uintptr_t current_context = 0, capture = 0;  ///< `capture`: the recording stream
  uintptr_t capture_event = 0, beside = 0;     ///< its last event, and the stream that waited for one
  uintptr_t beside_event = 0;                  ///< the last event there
  bool joined = true;                          ///< whether the recording stream has waited for everything there
  uintptr_t made = 0x1000;  ///< a number for every stream and event, followed by the context in which it was made
  uintptr_t marked = 0, waiting = 0,
            waited = 0;  ///< the last stream that was marked, that was made to wait, and for what
  // The last launch.
  unsigned grid[3] = {}, threads = 0, shared_bytes = 0, cluster = 0;
  bool overlaps = false;
  uintptr_t stream = 0, context = 0;
  unsigned char first_parameters[16] = {};
  int dynamic_shared_allowed = 0;
  // The last tensor map.
  int map_type = 0, map_swizzle = 0;
  uint32_t map_rank = 0, map_box[5] = {};
  uint64_t map_strides[5] = {};
};

extern "C" FakeDriverState* fake_driver_state();
