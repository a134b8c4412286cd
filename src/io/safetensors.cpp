#include "tenon/io/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <tuple>

#include "tenon/core/error.h"
#include "tenon/io/json.h"

namespace tenon {
namespace {
using nlohmann::json;

constexpr uint64_t kLargestNumber = uint64_t{1} << 62;  // of an extent or an offset

struct DTypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array<DTypeName, 11> kSupported = {{{"F64", DType::F64},
                                                   {"F32", DType::F32},
                                                   {"F16", DType::F16},
                                                   {"BF16", DType::BF16},
                                                   {"F8_E4M3", DType::E4M3},
                                                   {"I64", DType::I64},
                                                   {"I32", DType::I32},
                                                   {"I16", DType::I16},
                                                   {"I8", DType::I8},
                                                   {"U8", DType::U8},
                                                   {"BOOL", DType::Bool}}};
struct ForeignName {
  std::string_view name;
  uint64_t bytes;
};
// Types of the format that we have no use for: their sizes are still checked.
constexpr std::array<ForeignName, 6> kForeign = {
    {{"F8_E5M2", 1}, {"F8_E8M0", 1}, {"U16", 2}, {"U32", 4}, {"U64", 8}, {"C64", 8}}};

std::optional<DType> supported(std::string_view name) {
  for (const DTypeName& t : kSupported)
    if (t.name == name) return t.dtype;
  return std::nullopt;
}

// Bytes of an element of a named type; nothing for a name that is not of the format.
std::optional<uint64_t> element_size(std::string_view name) {
  if (const auto t = supported(name)) return static_cast<uint64_t>(size_of(*t));
  for (const ForeignName& t : kForeign)
    if (t.name == name) return t.bytes;
  return std::nullopt;
}

// One header entry, its types checked but not yet its numbers.
struct Entry {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;

  std::string shape_text() const {
    std::string out = "[";
    for (uint64_t extent : shape) out.append(out.size() > 1 ? "," : "").append(std::to_string(extent));
    return out.append("]");
  }
};

// Checks of one file's header; every message names the file, and the tensor where there is one.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  // The header's text, after the checks of the length field.
  std::string_view text(std::span<const std::byte> bytes) const {
    TENON_CHECK(Model, bytes.size() >= 8, file_)
        << "not a safetensors file: expected at least 8 bytes, found " << bytes.size();
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = (length << 8) | static_cast<uint64_t>(bytes[static_cast<size_t>(i)]);
    TENON_CHECK(Model, length <= kMaxSafetensorsHeader, file_)
        << "not a safetensors file: header length " << length << " exceeds the limit of " << kMaxSafetensorsHeader;
    TENON_CHECK(Model, length <= bytes.size() - 8, file_)
        << "truncated or not a safetensors file: header length " << length << " exceeds the " << bytes.size() - 8
        << " bytes that follow it";
    return {reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length)};
  }

  Entry entry(const std::string& tensor, const json& value) const {
    const std::string where = "tensor '" + tensor + "'";
    TENON_CHECK(Model, value.is_object(), file_) << where << ": expected an object, found " << value.type_name();
    for (const char* key : {"dtype", "shape", "data_offsets"})
      TENON_CHECK(Model, value.contains(key), file_) << where << ": '" << key << "' is missing";
    TENON_CHECK(Model, value["dtype"].is_string(), file_)
        << where << ": expected dtype to be a string, found " << value["dtype"].type_name();
    TENON_CHECK(Model, value["shape"].is_array(), file_)
        << where << ": expected shape to be an array, found " << value["shape"].type_name();
    const json& offsets = value["data_offsets"];
    TENON_CHECK(Model, offsets.is_array() && offsets.size() == 2, file_)
        << where << ": expected data_offsets to be an array of two numbers, found " << offsets.dump();
    Entry out{tensor,
              value["dtype"].get<std::string>(),
              {},
              number(where, "data_offsets", offsets[0]),
              number(where, "data_offsets", offsets[1])};
    for (const json& extent : value["shape"]) out.shape.push_back(number(where, "shape", extent));
    return out;
  }

  void check_range(const Entry& e, uint64_t data_size) const {
    const std::string where = "tensor '" + e.name + "'";
    TENON_CHECK(Model, e.begin <= e.end, file_)
        << where << ": data_offsets [" << e.begin << "," << e.end << "] are reversed";
    TENON_CHECK(Model, e.end <= data_size, file_)
        << where << ": data_offsets [" << e.begin << "," << e.end << "] exceed the file's " << data_size
        << " bytes of data (truncated?)";
    TENON_CHECK(Model, e.shape.size() <= static_cast<size_t>(kMaxRank), file_)
        << where << ": rank " << e.shape.size() << " exceeds the limit of " << kMaxRank;
    const auto width = element_size(e.dtype);
    if (!width) return;
    uint64_t bytes = *width;
    bool overflow = false;
    // A zero extent makes any overflow before it harmless, but no writer produces such a shape.
    for (uint64_t extent : e.shape)
      overflow = overflow || __builtin_mul_overflow(bytes, extent, &bytes) || bytes > kLargestNumber;
    TENON_CHECK(Model, !overflow, file_) << where << ": " << e.dtype << " of shape " << e.shape_text()
                                         << " has more bytes than can be addressed";
    TENON_CHECK(Model, bytes == e.end - e.begin, file_)
        << where << ": " << e.dtype << " of shape " << e.shape_text() << " needs " << bytes << " bytes, data_offsets ["
        << e.begin << "," << e.end << "] hold " << e.end - e.begin;
  }

  // Every byte of data belongs to exactly one tensor.
  void check_cover(std::vector<Entry>& entries, uint64_t data_size) const {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    uint64_t covered = 0;
    for (const Entry& e : entries) {
      TENON_CHECK(Model, e.begin >= covered, file_) << "tensor '" << e.name << "': data_offsets [" << e.begin << ","
                                                    << e.end << "] overlap another tensor, which ends at " << covered;
      TENON_CHECK(Model, e.begin == covered, file_)
          << "tensor '" << e.name << "' begins at " << e.begin << ", but bytes " << covered << " to " << e.begin
          << " of the data belong to no tensor";
      covered = e.end;
    }
    TENON_CHECK(Model, covered == data_size, file_)
        << "the tensors end at byte " << covered << " of the data, but the file holds " << data_size;
  }

  std::map<std::string, std::string> metadata(const json& value) const {
    TENON_CHECK(Model, value.is_object(), file_)
        << "__metadata__: expected an object of strings, found " << value.type_name();
    std::map<std::string, std::string> out;
    for (const auto& [key, text] : value.items()) {
      TENON_CHECK(Model, text.is_string(), file_)
          << "__metadata__: expected '" << key << "' to be a string, found " << text.type_name();
      out[key] = text.get<std::string>();
    }
    return out;
  }

 private:
  uint64_t number(const std::string& where, const char* field, const json& value) const {
    TENON_CHECK(Model, value.is_number_integer(), file_)
        << where << ": expected whole numbers in " << field << ", found " << value.dump();
    TENON_CHECK(Model, value.is_number_unsigned(), file_)
        << where << ": negative number " << value.dump() << " in " << field;
    const auto out = value.get<uint64_t>();
    TENON_CHECK(Model, out <= kLargestNumber, file_)
        << where << ": " << out << " in " << field << " is more than can be addressed";
    return out;
  }

  const std::string& file_;
};

// Page-aligned part of a view: rounded inwards (whole pages only) or outwards.
void advise(const TensorView& view, int advice, bool inwards) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t begin = reinterpret_cast<uintptr_t>(view.data), end = begin + view.size;
  begin = (inwards ? begin + page - 1 : begin) / page * page;
  end = (inwards ? end : end + page - 1) / page * page;
  // Advice only: a refusal changes nothing that anyone can see.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

struct SafetensorsFile::Mapping {
  void* address;
  size_t size;
  Mapping(void* a, size_t n) : address(a), size(n) {}
  ~Mapping() { munmap(address, size); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
};

std::string_view safetensors_name(DType t) {
  for (const DTypeName& n : kSupported)
    if (n.dtype == t) return n.name;
  return "";
}

SafetensorsFile::SafetensorsFile(std::string name, std::span<const std::byte> bytes)
    : name_(std::move(name)), bytes_(bytes) {
  const HeaderReader reader(name_);
  const std::string_view text = reader.text(bytes_);
  const json header = parse_json(text, name_);
  TENON_CHECK(Model, header.is_object(), name_) << "expected the header to be an object, found " << header.type_name();
  const std::span<const std::byte> data = bytes_.subspan(8 + text.size());
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") {
      metadata_ = reader.metadata(value);
      continue;
    }
    entries.push_back(reader.entry(key, value));
    reader.check_range(entries.back(), data.size());
  }
  reader.check_cover(entries, data.size());
  for (const Entry& e : entries) {
    const auto dtype = supported(e.dtype);
    if (!dtype) {
      unsupported_[e.name] = {e.name, e.dtype, e.shape_text()};
      continue;
    }
    const std::vector<int64_t> extents(e.shape.begin(), e.shape.end());
    tensors_[e.name] = {e.name, *dtype, Shape(extents), data.data() + e.begin, static_cast<size_t>(e.end - e.begin)};
  }
}

SafetensorsFile SafetensorsFile::from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return SafetensorsFile(name, bytes);
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  const auto reason = [] { return std::generic_category().message(errno); };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  TENON_CHECK(Model, fd >= 0, name) << "cannot open for reading: " << reason();
  struct stat info {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const size_t size = regular ? static_cast<size_t>(info.st_size) : 0;
  void* address = size >= 8 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  const std::string refusal = size >= 8 && address == MAP_FAILED ? reason() : "";
  close(fd);
  TENON_CHECK(Model, regular, name) << "expected a regular file";
  TENON_CHECK(Model, size >= 8, name) << "not a safetensors file: expected at least 8 bytes, found " << size;
  TENON_CHECK(Model, address != MAP_FAILED, name) << "cannot map the file: " << refusal;
  auto mapping = std::make_shared<const Mapping>(address, size);
  SafetensorsFile file(name, {static_cast<const std::byte*>(address), size});
  file.mapping_ = std::move(mapping);
  return file;
}

const TensorView& SafetensorsFile::at(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  if (found != tensors_.end()) return found->second;
  const auto foreign = unsupported_.find(tensor);
  TENON_CHECK(Model, foreign == unsupported_.end(), name_)
      << "tensor '" << tensor << "' " << foreign->second.shape << " has the unsupported element type "
      << foreign->second.dtype;
  throw Error(ErrorKind::Model, name_, "there is no tensor '" + tensor + "'");
}

void release(const TensorView& view) { advise(view, MADV_DONTNEED, true); }
void prefetch(const TensorView& view) { advise(view, MADV_WILLNEED, false); }

}  // namespace tenon
