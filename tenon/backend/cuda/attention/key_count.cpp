#include "tenon/backend/cuda/attention/key_count.h"

#include <array>

#include "tenon/backend/cuda/codegen/program_source.h"

namespace tenon::cuda {

std::string keys_source(const Expr& count, Params& params, std::string& headers) {
  if (!count) return "using Keys = AllKeys;\n";
  const ProgramOutput value{count, {}, DType::F32};
  ProgramSource program(std::array{value}, {value.value.shape(), 0}, params, 1);
  const std::string source = program.functor("KeyCount");
  headers += program.includes();
  return source +
         "struct Keys {\n  static constexpr bool kGiven = true;\n  DEV static int count(const Params& p, int " +
         (count.shape().numel() == 1 ? ") { return static_cast<int>(KeyCount::eval(p, 0, 0).v[0]); }\n};\n"
                                     : "batch) { return static_cast<int>(KeyCount::eval(p, 0, batch).v[0]); }\n};\n");
}

}  // namespace tenon::cuda
