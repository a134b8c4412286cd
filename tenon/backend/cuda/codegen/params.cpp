#include "tenon/backend/cuda/codegen/params.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "tenon/core/error.h"

namespace tenon::cuda {

int32_t checked_int(int64_t value) {
  TENON_CHECK(Memory, value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max(),
              "cuda")
      << "a tensor has 2^31 elements or more; kernels index with 32 bits";
  return static_cast<int32_t>(value);
}

device::Divisor divisor_of(int64_t d) {
  const auto n = static_cast<uint32_t>(checked_int(std::max<int64_t>(d, 1)));
  const uint32_t shift = n > 1 ? 32 - static_cast<uint32_t>(std::countl_zero(n - 1)) : 0;
  const uint64_t multiplier = ((uint64_t{1} << 32) * ((uint64_t{1} << shift) - n)) / n + 1;
  return {n, static_cast<uint32_t>(multiplier), shift};
}

std::string type_source(DType t) {
  switch (t) {
    case DType::F64:
      return "double";
    case DType::F32:
      return "float";
    case DType::F16:
      return "F16";
    case DType::BF16:
      return "BF16";
    case DType::E4M3:
      return "E4M3";
    case DType::I64:
      return "int64_t";
    case DType::I32:
      return "int32_t";
    case DType::I16:
      return "int16_t";
    case DType::I8:
      return "int8_t";
    case DType::U8:
      return "uint8_t";
    case DType::Bool:
      return "bool";
  }
  return {};
}

std::string Params::keep_shared(const Expr& leaf) {
  std::string at = reserve_shared("at", leaf.shape().numel() * size_of(leaf.dtype()));
  shared_[leaf.get()] = at;
  return at;
}

std::string Params::reserve_shared(const std::string& role, int64_t bytes) {
  std::string at = integer(role, shared_bytes_);
  reserve_shared(bytes);
  return at;
}

std::string Params::pointer(const Expr& leaf, bool written) {
  if (const auto it = shared_.find(leaf.get()); it != shared_.end())
    return "in_shared<" + type_source(leaf.dtype()) + ">(" + it->second + ")";
  for (const Field& f : pointers_)
    if (f.leaf == leaf && f.written == written) return "p." + f.name;
  checked_int(leaf.shape().numel());  // offsets from it are ints
  const auto same =
      std::count_if(pointers_.begin(), pointers_.end(), [&](const Field& f) { return f.written == written; });
  Field f;
  f.type = (written ? "" : "const ") + type_source(leaf.dtype()) + "*";
  f.name = (written ? "out" : "in") + std::to_string(same);
  f.leaf = leaf;
  f.written = written;
  pointers_.push_back(f);
  return "p." + f.name;
}

std::string Params::map(const Expr& leaf, MakeBox box) {
  maps_.push_back({maps_.size() * sizeof(TensorMap), leaf, std::move(box)});
  return "p.map" + std::to_string(maps_.size() - 1);
}

std::string Params::add(const std::string& type, const std::string& role, const void* value, size_t bytes) {
  Field f;
  f.type = type;
  f.name = role + std::to_string(fields_.size());
  f.value.resize(bytes);
  std::memcpy(f.value.data(), value, bytes);
  fields_.push_back(f);
  return "p." + f.name;
}

std::string Params::integer(const std::string& role, int64_t value) {
  const int32_t v = checked_int(value);
  return add("int", role, &v, sizeof(v));
}

std::string Params::divisor(const std::string& role, int64_t value) {
  const device::Divisor d = divisor_of(value);
  return add("Divisor", role, &d, sizeof(d));
}

std::string Params::number(const std::string& role, double value) {
  const float v = static_cast<float>(value);
  return add("float", role, &v, sizeof(v));
}

std::string Params::declaration() const {
  std::string out = "struct Params {\n";
  for (size_t i = 0; i < maps_.size(); ++i) out += "  TensorMap map" + std::to_string(i) + ";\n";
  if (!sizes_.empty()) out += "  " + sizes_type_ + " sizes;\n";
  for (const std::vector<Field>* list : {&pointers_, &fields_})
    for (const Field& f : *list) out.append("  ").append(f.type).append(" ").append(f.name).append(";\n");
  return out + "};\n";
}

std::vector<std::byte> Params::bytes() const {
  std::vector<std::byte> out(sizes_at());
  out.insert(out.end(), sizes_.begin(), sizes_.end());
  out.resize(out.size() + 8 * pointers_.size());
  for (const Field& f : fields_) out.insert(out.end(), f.value.begin(), f.value.end());
  const size_t line = maps_.empty() ? 8 : alignof(TensorMap);
  out.resize((out.size() + line - 1) / line * line);
  return out;
}

std::vector<Params::Pointer> Params::pointers() const {
  std::vector<Pointer> out;
  for (size_t i = 0; i < pointers_.size(); ++i)
    out.push_back({sizes_at() + sizes_.size() + 8 * i, pointers_[i].leaf, pointers_[i].name, pointers_[i].written});
  return out;
}

}  // namespace tenon::cuda
