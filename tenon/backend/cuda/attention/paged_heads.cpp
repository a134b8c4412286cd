#include "tenon/backend/cuda/attention/paged_heads.h"

#include <algorithm>
#include <array>

#include "tenon/backend/cuda/codegen/program_source.h"
#include "tenon/backend/paged_axis.h"

namespace tenon::cuda {

bool PagedHeads::same_pages(const PagedHeads& o) const {
  return numbers == o.numbers && numbers_offset == o.numbers_offset && entry_stride == o.entry_stride &&
         page_stride == o.page_stride && page == o.page && pages == o.pages;
}

std::optional<PagedHeads> paged_heads(const Expr& view, int64_t tile) {
  const Shape& shape = view.shape();
  const int64_t size = size_of(view.dtype());
  if (shape.rank() != 4 || (size != 2 && size != 4)) return std::nullopt;
  const int64_t vector = 16 / size;
  const auto p = paged_axis(view, 2);
  if (!p || shape[3] % vector || p->page % tile || p->offset % vector || p->stride[0] != 0 || p->number_stride[1] != 0)
    return std::nullopt;
  const int64_t token = p->stride[3], head = shape[1] == 1 ? vector : p->stride[1];
  // The pool's tokens are contiguous, page after page.
  if (token <= 0 || token % vector || head <= 0 || head % vector || p->stride[4] != 1 ||
      p->number.stride != p->page * token)
    return std::nullopt;
  return PagedHeads{{p->leaf, p->offset, {token, head, vector}},
                    p->number.numbers,
                    p->number.offset,
                    p->number_stride[0],
                    p->number_stride[2],
                    p->page,
                    p->number.extent};
}

bool in_pages(const Expr& keys, const Expr& values) {
  constexpr int64_t kTile = 64;  // a multiple of what any core takes at a time
  const auto k = paged_heads(keys, kTile), v = paged_heads(values, kTile);
  return k && v && k->same_pages(*v);
}

std::string page_source(const PagedHeads& heads, Params& params) {
  const auto number = [&](const char* role, int64_t n) {
    return n == 0 || n == 1 ? std::to_string(n) : params.integer(role, n);
  };
  const std::string type = type_source(heads.numbers.dtype()), page = std::to_string(heads.page);
  const std::string pointer = params.pointer(heads.numbers, false),
                    offset = number("pages_offset", heads.numbers_offset),
                    at = offset + " + entry * " + number("pages_entry", heads.entry_stride) + " + token / kPage * " +
                         number("pages_stride", heads.page_stride),
                    count = params.integer("pages", heads.pages);
  const auto place = [&](const char* name, const std::string& read) {
    return std::string("  DEV static int ") + name + "(const Params& p, int entry, int token) {\n    const " + type +
           " n = " + read + ";\n    return n >= 0 && n < " + count +
           " ? static_cast<int>(n) * kPage + token % kPage : -1;\n  }\n";
  };
  return "  static constexpr int kPage = " + page + ";\n" + place("place", pointer + "[" + at + "]") +
         place("place_early", "load_past_l1<" + type + ", 1>(" + pointer + " + " + at + ").v[0]");
}

std::string paged_source(const std::string& name, const PagedHeads& heads, const Shape& shape, Params& params) {
  const std::string pointer = params.pointer(heads.rows.leaf, false), tokens = params.divisor("tokens", shape[2]),
                    of = params.divisor("heads", shape[1]);
  const auto integer = [&](const char* role, int64_t n) { return params.integer(role, n); };
  const std::string offset = heads.rows.offset ? integer("offset", heads.rows.offset) : "0";
  return "struct " + name + " {\n  using T = " + type_source(heads.rows.leaf.dtype()) +
         ";\n  static constexpr int kWidth = " + std::to_string(16 / size_of(heads.rows.leaf.dtype())) +
         ";\n  struct Row {\n    const T* x;\n  };\n" + page_source(heads, params) +
         "  DEV static Row row_at(const Params& p, int place, int head) {\n    return {" + pointer + " + (" + offset +
         " + (place < 0 ? 0 : place) * " + integer("token_stride", heads.rows.strides.token) + " + head * " +
         integer("head_stride", heads.rows.strides.head) +
         ")};\n  }\n  DEV static Row row(const Params& p, int row) {\n    const int of_head = row / " + tokens +
         ", entry = of_head / " + of + ";\n    return row_at(p, place(p, entry, row - of_head * static_cast<int>(" +
         tokens + ".divisor)), of_head - entry * static_cast<int>(" + of +
         ".divisor));\n  }\n  DEV static const T* at(const Row& r, int col) { return r.x + col; }\n};\n";
}

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
