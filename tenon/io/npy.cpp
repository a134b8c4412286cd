#include "tenon/io/npy.h"

#include <bit>
#include <string>
#include <vector>

#include "tenon/core/error.h"

namespace tenon {

void write_npy(AtomicFile& file, const Shape& shape, std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  TENON_CHECK(Usage, shape.numel() == static_cast<int64_t>(values.size()), "npy")
      << shape.str() << " needs " << shape.numel() << " values, got " << values.size();
  std::string dims;
  for (const int64_t d : shape) dims += std::to_string(d) + ", ";
  if (shape.rank() > 1) dims.resize(dims.size() - 2);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + dims + "), }";
  constexpr size_t kPrefix = 10, kAlignment = 64;  // magic, version, length; alignment of the data
  header.append(kAlignment - (kPrefix + header.size() + 1) % kAlignment, ' ').push_back('\n');
  std::string head("\x93NUMPY\x01\x00", 8);
  head.push_back(static_cast<char>(header.size() & 255));
  head.push_back(static_cast<char>(header.size() >> 8));
  head += header;
  file.write(std::as_bytes(std::span(head)));
  file.write(std::as_bytes(values));
}

void write_npy(const std::filesystem::path& path, const Shape& shape, std::span<const float> values,
               Overwrite overwrite) {
  AtomicFile file(path, overwrite);
  write_npy(file, shape, values);
  file.commit();
}

}  // namespace tenon
