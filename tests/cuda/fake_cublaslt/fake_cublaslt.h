// A fake cuBLASLt without a GPU, for tests: a shared library with the exports that we use. It multiplies on the CPU,
// column by column as cuBLAS does, through the descriptors it is given; it checks them strictly, counts open objects,
// and fails on demand.
#pragma once
#include <cstddef>

/// State and counters of the library, reached through its export `fake_cublaslt_state`.
struct FakeCublasLtState {
  // Set by tests: the result of the next call.
  int fail_create = 0, fail_multiply = 0, fail_heuristic = 0;
  size_t version = 130100;
  int takes_us = -1;  ///< a product takes this long, and its result is not computed
  // Counted by the library.
  int handles = 0, descriptors = 0, layouts = 0, preferences = 0;
  int multiplications = 0;
  // Requests of the last product.
  unsigned epilogue = 0;
  float alpha = 0, beta = 0;
  unsigned reductions_allowed = 0;
  int batch = 0;
};

extern "C" FakeCublasLtState* fake_cublaslt_state();
