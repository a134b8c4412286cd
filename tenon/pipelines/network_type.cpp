#include "tenon/pipelines/network_type.h"

#include <algorithm>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/similar.h"
#include "tenon/core/text.h"

namespace tenon {
namespace {

using Rule = PrecisionPolicy::Rule;

struct Spelling {
  std::string_view text;
  DType type;
};
constexpr Spelling kTypes[] = {{"bf16", DType::BF16},     {"f16", DType::F16},    {"f32", DType::F32},
                               {"e4m3", DType::E4M3},     {"int8", DType::I8},    {"e4m3 rows", DType::E4M3},
                               {"i8 weights", DType::I8}, {"fp8", DType::E4M3},   {"i8", DType::I8},
                               {"bfloat16", DType::BF16}, {"fp16", DType::F16},   {"float16", DType::F16},
                               {"fp32", DType::F32},      {"float32", DType::F32}};

DType type_of(const std::string& text) {
  const auto* it = std::ranges::find(kTypes, text, &Spelling::text);
  if (it != std::end(kTypes)) return it->type;
  std::vector<std::string> known;
  for (const Spelling& s : kTypes) known.emplace_back(s.text);
  throw Error(ErrorKind::Usage, "type", "'" + shown(text) + "' is not supported; expected bf16, f16, f32, e4m3 or int8",
              did_you_mean(text, known));
}

}  // namespace

NetworkType::NetworkType(DType type) : stored(type == DType::E4M3 || type == DType::I8 ? DType::BF16 : type) {
  if (type == DType::E4M3) policy.rule = Rule::E4m3Rows;
  if (type == DType::I8) policy.rule = Rule::I8Weights;
}

NetworkType NetworkType::parse(std::string_view text) {
  const size_t comma = std::min(text.find(','), text.size());
  std::string head(text.substr(0, comma));
  head.erase(0, std::min(head.find_first_not_of(' '), head.size()));
  head.erase(head.find_last_not_of(' ') + 1);
  NetworkType out(type_of(head));
  if (comma < text.size())
    out.policy.exceptions = PrecisionPolicy::parse("operands" + std::string(text.substr(comma))).exceptions;
  return out;
}

DType NetworkType::name() const {
  if (policy.rule == Rule::E4m3Rows) return DType::E4M3;
  return policy.rule == Rule::I8Weights ? DType::I8 : stored;
}

std::string NetworkType::text() const {
  const std::string all = policy.text();
  return std::string(name_of(name())) + all.substr(std::min(all.find(','), all.size()));
}

}  // namespace tenon
