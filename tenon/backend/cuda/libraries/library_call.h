// A call of a vendor's library (cuBLASLt, cuDNN), planned once and run on given addresses. Everything is decided and
// created together with the launch (so that its memory is known before anything is allocated); a call only enqueues
// work on a stream, so that it can be captured into a graph.
//
// In the table of tiles (tile_table.h) a library's line has a separate key, the product's plus what its epilogue adds,
// and a value that begins with the library's name and version:
//   gemm 2048x1280x5120 batch 1 lanes 1 bytes 2 epilogue bias residual = cublaslt 13.1.0 ..  # 12.34 us
// If the library cannot run it (absent, another version), the product's own line, without an epilogue, applies.
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
  /// Workspace of a call in bytes, 256-byte aligned; supplied by the caller.
  virtual int64_t workspace_bytes() const = 0;
  /// Enqueues the call on `stream` (a CUstream), with the GPU's context current; does not allocate or wait.
  /// `addresses`: of the kernel call's operands, in their order. Throws Error(Device).
  virtual void enqueue(void* stream, std::span<void* const> addresses, void* workspace) = 0;
};

/// Makes the GPU's context current while the returned object lives: a library needs it to start and to plan.
using MakeCurrent = std::function<std::shared_ptr<void>()>;

/// An address passed to a call: a leaf's, plus an offset.
struct LibraryOperand {
  Expr leaf;
  int64_t offset_bytes = 0;
};

}  // namespace tenon::cuda
