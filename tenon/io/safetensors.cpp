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
#include <utility>

#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/json.h"

namespace tenon {
namespace {
constexpr uint64_t kLargestNumber = uint64_t{1} << 62;  // of an extent or an offset
constexpr size_t kLongestType = 32;                     // longest name of an element type

// Whether a later version of the format may use this name: capital letters, digits and _, as in F8_E4M3.
bool may_be_a_type(std::string_view name) {
  const auto capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  return !name.empty() && name.size() <= kLongestType && capital(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return capital(c) || (c >= '0' && c <= '9') || c == '_'; });
}

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
// Types of the format that we do not use; their sizes are still checked.
constexpr std::array<ForeignName, 6> kForeign = {
    {{"F8_E5M2", 1}, {"F8_E8M0", 1}, {"U16", 2}, {"U32", 4}, {"U64", 8}, {"C64", 8}}};

std::optional<DType> supported(std::string_view name) {
  for (const DTypeName& t : kSupported)
    if (t.name == name) return t.dtype;
  return std::nullopt;
}

// Bytes per element of a named type; empty for a name that is not in the format.
std::optional<uint64_t> element_size(std::string_view name) {
  if (const auto t = supported(name)) return static_cast<uint64_t>(size_of(*t));
  for (const ForeignName& t : kForeign)
    if (t.name == name) return t.bytes;
  return std::nullopt;
}

// One header entry.
struct Entry {
  std::string name, dtype;
  std::array<int64_t, kMaxRank> extents{};
  std::array<uint64_t, 2> offsets{};
  int rank = 0;
  uint64_t begin() const { return offsets[0]; }
  uint64_t end() const { return offsets[1]; }

  std::string shape_text() const {
    std::string out = "[";
    for (int i = 0; i < rank; ++i) out.append(i ? "," : "").append(std::to_string(extents[static_cast<size_t>(i)]));
    return out.append("]");
  }
};

std::string offsets_text(const Entry& e) {
  return "data_offsets [" + std::to_string(e.begin()) + "," + std::to_string(e.end()) + "]";
}

// Reads a header event by event, so that only its tensors are kept and an invalid header is refused at its first error.
// Every message names the file, and the tensor if there is one.
class HeaderReader : public JsonEvents {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  void value(nlohmann::json v) override {
    switch (place_) {
      case Place::Nothing:
        refuse("expected the header to be an object, found ", v);
      case Place::Header:
        TENON_CHECK(Model, !in_metadata_, file_)
            << "__metadata__: expected an object of strings, found " << v.type_name();
        refuse(where() + ": expected an object, found ", v);
      case Place::Metadata:
        TENON_CHECK(Model, v.is_string(), file_)
            << "__metadata__: expected '" << shown(key_) << "' to be a string, found " << v.type_name();
        *text_ = std::move(v.get_ref<std::string&>());
        break;
      case Place::Entry:
        field_value(v);
        break;
      case Place::Shape:
        TENON_CHECK(Model, last().rank < kMaxRank, file_) << where() << ": more extents than the limit of " << kMaxRank;
        last().extents[static_cast<size_t>(last().rank++)] = static_cast<int64_t>(number("shape", v));
        break;
      case Place::Offsets:
        if (count_ == 2) refuse_offsets("more");
        last().offsets[count_++] = number("data_offsets", v);
        break;
      case Place::Unknown:
        break;
    }
  }

  void key(std::string name) override {
    if (place_ == Place::Header) {
      in_metadata_ = name == "__metadata__";
      if (in_metadata_) {
        if (std::exchange(has_metadata_, true)) refuse_duplicate(name);
        return;
      }
      TENON_CHECK(Model, entries.size() < kMaxTensors, file_) << "has more than " << kMaxTensors << " tensors";
      entries.emplace_back().name = std::move(name);
      fields_ = 0;
    } else if (place_ == Place::Metadata) {
      TENON_CHECK(Model, metadata.size() < kMaxMetadata, file_)
          << "has more than " << kMaxMetadata << " metadata entries";
      const auto [at, added] = metadata.emplace(name, "");
      if (!added) refuse_duplicate(name);
      text_ = &at->second;
      key_ = std::move(name);
    } else if (place_ == Place::Entry) {
      field_ = name == "dtype" ? kDtype : name == "shape" ? kShape : name == "data_offsets" ? kOffsets : 0;
      if (fields_ & field_) refuse_duplicate(name);
      fields_ |= field_;
    }
  }

  void begin(bool object) override {
    switch (place_) {
      case Place::Nothing:
        TENON_CHECK(Model, object, file_) << "expected the header to be an object, found array";
        place_ = Place::Header;
        return;
      case Place::Header:
        TENON_CHECK(Model, object || !in_metadata_, file_)
            << "__metadata__: expected an object of strings, found array";
        TENON_CHECK(Model, object, file_) << where() << ": expected an object, found array";
        place_ = in_metadata_ ? Place::Metadata : Place::Entry;
        return;
      case Place::Metadata:
        throw Error(
            ErrorKind::Model, file_,
            "__metadata__: expected '" + shown(key_) + "' to be a string, found " + (object ? "object" : "array"));
      case Place::Entry:
        return begin_field(object);
      case Place::Shape:
      case Place::Offsets:
        throw Error(ErrorKind::Model, file_,
                    where() + ": expected whole numbers in " + (place_ == Place::Shape ? "shape" : "data_offsets") +
                        ", found " + (object ? "an object" : "an array"));
      case Place::Unknown:
        ++unknown_depth_;
    }
  }

  void end() override {
    switch (place_) {
      case Place::Unknown:
        if (--unknown_depth_ == 0) place_ = Place::Entry;
        return;
      case Place::Offsets:
        if (count_ != 2) refuse_offsets("fewer");
        [[fallthrough]];
      case Place::Shape:
        place_ = Place::Entry;
        return;
      case Place::Entry:
        for (const auto& [bit, name] : {std::pair{kDtype, "dtype"}, {kShape, "shape"}, {kOffsets, "data_offsets"}})
          TENON_CHECK(Model, fields_ & bit, file_) << where() << ": '" << name << "' is missing";
        [[fallthrough]];
      default:
        place_ = Place::Header;
    }
  }

 private:
  enum class Place : uint8_t { Nothing, Header, Metadata, Entry, Shape, Offsets, Unknown };
  static constexpr unsigned kDtype = 1, kShape = 2, kOffsets = 4;

  Entry& last() { return entries.back(); }
  std::string where() const { return "tensor '" + shown(entries.back().name) + "'"; }

  [[noreturn]] void refuse(const std::string& what, const nlohmann::json& found) const {
    throw Error(ErrorKind::Model, file_, what + found.type_name());
  }
  [[noreturn]] void refuse_duplicate(const std::string& name) const {
    throw Error(ErrorKind::Model, file_, "duplicate key '" + shown(name) + "' in JSON");
  }
  [[noreturn]] void refuse_offsets(const char* found) const {
    throw Error(ErrorKind::Model, file_,
                where() + ": expected data_offsets to be an array of two numbers, found " + found);
  }

  void field_value(nlohmann::json& v) {
    if (field_ == kDtype) {
      TENON_CHECK(Model, v.is_string(), file_) << where() << ": expected dtype to be a string, found " << v.type_name();
      last().dtype = std::move(v.get_ref<std::string&>());
      TENON_CHECK(Model, may_be_a_type(last().dtype), file_)
          << where() << ": '" << shown(last().dtype) << "' is not an element type; expected one such as F32";
    } else if (field_ == kShape) {
      refuse(where() + ": expected shape to be an array, found ", v);
    } else if (field_ == kOffsets) {
      refuse_offsets(shown_json(v).c_str());
    }
  }

  void begin_field(bool object) {
    const char* found = object ? "object" : "array";
    TENON_CHECK(Model, field_ != kDtype, file_) << where() << ": expected dtype to be a string, found " << found;
    TENON_CHECK(Model, field_ != kShape || !object, file_)
        << where() << ": expected shape to be an array, found object";
    if (field_ == kOffsets && object) refuse_offsets("an object");
    count_ = 0;
    unknown_depth_ = 1;
    place_ = field_ == kShape ? Place::Shape : field_ == kOffsets ? Place::Offsets : Place::Unknown;
  }

  uint64_t number(const char* field, const nlohmann::json& v) const {
    TENON_CHECK(Model, v.is_number_integer(), file_)
        << where() << ": expected whole numbers in " << field << ", found " << shown_json(v);
    TENON_CHECK(Model, v.is_number_unsigned(), file_)
        << where() << ": negative number " << shown_json(v) << " in " << field;
    const auto out = v.get<uint64_t>();
    TENON_CHECK(Model, out <= kLargestNumber, file_)
        << where() << ": " << out << " in " << field << " is more than can be addressed";
    return out;
  }

  const std::string& file_;
  Place place_ = Place::Nothing;
  bool in_metadata_ = false, has_metadata_ = false;
  std::string key_;  // of the metadata, and its value
  std::string* text_ = nullptr;
  unsigned field_ = 0, fields_ = 0;  // bits of the entry's fields: the one whose value comes next, those seen so far
  size_t count_ = 0;                 // number of offsets seen
  int unknown_depth_ = 0;
};

// The header's text, after checking the length field.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& file) {
  TENON_CHECK(Model, bytes.size() >= 8, file)
      << "not a safetensors file: expected at least 8 bytes, found " << bytes.size();
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = (length << 8) | static_cast<uint64_t>(bytes[static_cast<size_t>(i)]);
  TENON_CHECK(Model, length <= kMaxSafetensorsHeader, file)
      << "not a safetensors file: header length " << length << " exceeds the limit of " << kMaxSafetensorsHeader;
  TENON_CHECK(Model, length <= bytes.size() - 8, file)
      << "truncated or not a safetensors file: header length " << length << " exceeds the " << bytes.size() - 8
      << " bytes that follow it";
  return {reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length)};
}

void check_range(const Entry& e, uint64_t data_size, const std::string& file) {
  const auto where = [&] { return "tensor '" + shown(e.name) + "'"; };
  TENON_CHECK(Model, e.begin() <= e.end(), file) << where() << ": " << offsets_text(e) << " are reversed";
  TENON_CHECK(Model, e.end() <= data_size, file)
      << where() << ": " << offsets_text(e) << " exceed the file's " << data_size << " bytes of data (truncated?)";
  const auto width = element_size(e.dtype);
  if (!width) return;
  uint64_t bytes = *width;
  bool overflow = false;
  // A zero extent would make an overflow before it harmless, but no writer produces such a shape.
  for (int i = 0; i < e.rank; ++i)
    overflow = overflow ||
               __builtin_mul_overflow(bytes, static_cast<uint64_t>(e.extents[static_cast<size_t>(i)]), &bytes) ||
               bytes > kLargestNumber;
  TENON_CHECK(Model, !overflow, file) << where() << ": " << e.dtype << " of shape " << e.shape_text()
                                      << " has more bytes than can be addressed";
  TENON_CHECK(Model, bytes == e.end() - e.begin(), file)
      << where() << ": " << e.dtype << " of shape " << e.shape_text() << " needs " << bytes << " bytes, "
      << offsets_text(e) << " hold " << e.end() - e.begin();
}

// A tensor's range and name, which points to the key in the file's maps.
struct Place {
  std::array<uint64_t, 2> offsets;
  const std::string* name;
};

// Checks that every byte of data belongs to exactly one tensor.
void check_cover(std::vector<Place>& places, uint64_t data_size, const std::string& file) {
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return std::tie(a.offsets, *a.name) < std::tie(b.offsets, *b.name); });
  uint64_t covered = 0;
  for (const Place& p : places) {
    const auto [begin, end] = p.offsets;
    TENON_CHECK(Model, begin >= covered, file) << "tensor '" << shown(*p.name) << "': data_offsets [" << begin << ","
                                               << end << "] overlap another tensor, which ends at " << covered;
    TENON_CHECK(Model, begin == covered, file)
        << "tensor '" << shown(*p.name) << "' begins at " << begin << ", but bytes " << covered << " to " << begin
        << " of the data belong to no tensor";
    covered = end;
  }
  TENON_CHECK(Model, covered == data_size, file)
      << "the tensors end at byte " << covered << " of the data, but the file holds " << data_size;
}

// Calls madvise on a view's pages, rounded inwards (whole pages only) or outwards.
void advise(const TensorView& view, int advice, bool inwards) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t begin = reinterpret_cast<uintptr_t>(view.data), end = begin + view.size;
  begin = (inwards ? begin + page - 1 : begin) / page * page;
  end = (inwards ? end : end + page - 1) / page * page;
  // Only advice: if it is refused, nothing visible changes.
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
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address), size}; }
};

std::string_view safetensors_name(DType t) {
  for (const DTypeName& n : kSupported)
    if (n.dtype == t) return n.name;
  return "";
}

SafetensorsFile::SafetensorsFile(std::string name, std::span<const std::byte> bytes)
    : name_(std::move(name)), bytes_(bytes) {
  const std::string_view text = header_text(bytes_, name_);
  data_ = bytes_.subspan(8 + text.size());
  HeaderReader header(name_);
  parse_json_events(text, name_, ErrorKind::Model, header);
  std::vector<Place> places;
  places.reserve(header.entries.size());
  for (Entry& e : header.entries) {
    check_range(e, data_.size(), name_);
    const auto dtype = supported(e.dtype);
    bool twice = (dtype ? unsupported_.count(e.name) : tensors_.count(e.name)) > 0;
    const auto add = [&](auto& map, auto value) {  // most files are ordered by name
      const size_t before = map.size();
      const auto at = map.emplace_hint(map.end(), std::move(e.name), std::move(value));
      twice = twice || map.size() == before;
      places.push_back({e.offsets, &at->first});
    };
    if (dtype)
      add(tensors_, TensorView{*dtype, Shape(std::span(e.extents.data(), static_cast<size_t>(e.rank))),
                               data_.data() + e.begin(), e.end() - e.begin()});
    else
      add(unsupported_, UnsupportedTensor{std::move(e.dtype), e.shape_text()});
    TENON_CHECK(Model, !twice, name_) << "duplicate key '" << shown(*places.back().name) << "' in JSON";
  }
  check_cover(places, data_.size(), name_);
  metadata_ = std::move(header.metadata);
}

SafetensorsFile SafetensorsFile::from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return SafetensorsFile(name, bytes);
}

std::shared_ptr<const SafetensorsFile::Mapping> SafetensorsFile::map(const std::filesystem::path& path) {
  const std::string name = path.string();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  TENON_CHECK(Model, fd >= 0, name) << "cannot open for reading: " << system_reason(errno);
  struct stat info {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const size_t size = regular ? static_cast<size_t>(info.st_size) : 0;
  void* address = size >= 8 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  const int error = errno;
  close(fd);
  TENON_CHECK(Model, regular, name) << "expected a regular file";
  TENON_CHECK(Model, size >= 8, name) << "not a safetensors file: expected at least 8 bytes, found " << size;
  TENON_CHECK(Model, address != MAP_FAILED, name) << "cannot map the file: " << system_reason(error);
  return std::make_shared<const Mapping>(address, size);
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  auto mapping = map(path);
  SafetensorsFile file(path.string(), mapping->bytes());
  file.mapping_ = std::move(mapping);
  return file;
}

bool SafetensorsFile::mentions(const std::filesystem::path& path, std::string_view text) {
  const auto mapping = map(path);
  return header_text(mapping->bytes(), path.string()).find(text) != std::string_view::npos;
}

const TensorView& SafetensorsFile::at(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  if (found != tensors_.end()) return found->second;
  const auto foreign = unsupported_.find(tensor);
  TENON_CHECK(Model, foreign == unsupported_.end(), name_)
      << "tensor '" << shown(tensor) << "' " << foreign->second.shape << " has the unsupported element type "
      << shown(foreign->second.dtype);
  throw Error(ErrorKind::Model, name_, "there is no tensor '" + shown(tensor) + "'");
}

void release(const TensorView& view) { advise(view, MADV_DONTNEED, true); }
void prefetch(const TensorView& view) { advise(view, MADV_WILLNEED, false); }

}  // namespace tenon
