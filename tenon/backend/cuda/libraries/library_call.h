// What is asked of a vendor's library (cuBLASLt, cuDNN): a call that was planned once, on addresses. Everything is
// decided and made when the launch is (so that its memory is known before anything is allocated); a call only puts work
// on a stream, so that it can be recorded into a graph.
//
// In the table of tiles (tile_table.h) a library's line has a key of its own, the product's and what its epilogue
// stores, and a value that begins with the library's name and version:
//   gemm 2048x1280x5120 batch 1 lanes 1 bytes 2 epilogue bias residual = cublaslt 13.1.0 ..  # 12.34 us
// Where the library cannot run it (absent, another version) the product's own line, without an epilogue, is as it was.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "tenon/expr/expr.h"

namespace tenon::cuda {

class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  /// Bytes that a call works in, 256-byte aligned; the caller's.
  virtual int64_t workspace_bytes() const = 0;
  /// Puts the call on `stream` (a CUstream), with the GPU's context current; allocates nothing and waits for nothing.
  /// `addresses`: of the kernel call's operands, in their order. Throws Error(Device).
  virtual void launch(void* stream, std::span<void* const> addresses, void* workspace) = 0;
};

/// Makes the GPU's context current for as long as what it gives lives: a library wants it to start and to plan.
using MakeCurrent = std::function<std::shared_ptr<void>()>;

/// An address that a call gets: a leaf's, and bytes from there.
struct LibraryOperand {
  Expr leaf;
  int64_t offset_bytes = 0;
};

}  // namespace tenon::cuda
