#include "tenon/io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"

namespace tenon {
namespace {

constexpr uint64_t kMaxNameBytes = 65535;  // of a key or a tensor's name
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr uint64_t kLargestTensor = uint64_t{1} << 62;
constexpr uint32_t kMaxExtents = 4;
// The minimum size of each: an empty name, no extents.
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1, kMinTensorBytes = 8 + 4 + 4 + 8;

template <class T>
T load(std::span<const std::byte> bytes, size_t at = 0) {
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

// Bytes of a number; 0 for strings, arrays and unknown types.
size_t number_bytes(GgufType t) {
  constexpr std::array<size_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return static_cast<size_t>(t) < kBytes.size() ? kBytes[static_cast<size_t>(t)] : 0;
}

std::string_view kind_name(const GgufValue& v) {
  constexpr std::array<std::string_view, 13> kNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                       "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(v.type)];
}

int64_t integer_at(const GgufValue& v, size_t i, const std::string& where, std::string_view key) {
  switch (v.type) {
    case GgufType::U8:
    case GgufType::Bool:
      return load<uint8_t>(v.data, i);
    case GgufType::I8:
      return load<int8_t>(v.data, i);
    case GgufType::U16:
      return load<uint16_t>(v.data, 2 * i);
    case GgufType::I16:
      return load<int16_t>(v.data, 2 * i);
    case GgufType::U32:
      return load<uint32_t>(v.data, 4 * i);
    case GgufType::I32:
      return load<int32_t>(v.data, 4 * i);
    case GgufType::I64:
      return load<int64_t>(v.data, 8 * i);
    case GgufType::U64: {
      const auto out = load<uint64_t>(v.data, 8 * i);
      TENON_CHECK(Model, out <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), where)
          << key << ": " << out << " is too large";
      return static_cast<int64_t>(out);
    }
    default:
      throw Error(ErrorKind::Model, where,
                  std::string(key) + ": expected an integer, found " + std::string(kind_name(v)));
  }
}

double number_at(const GgufValue& v, size_t i, const std::string& where, std::string_view key) {
  if (v.type == GgufType::F32) return load<float>(v.data, 4 * i);
  if (v.type == GgufType::F64) return load<double>(v.data, 8 * i);
  if (v.type == GgufType::U64) return static_cast<double>(load<uint64_t>(v.data, 8 * i));
  return static_cast<double>(integer_at(v, i, where, key));
}

std::string_view checked_text(std::string_view text, const std::string& where, std::string_view key) {
  if (const auto bad = first_invalid_utf8(text))
    throw Error(ErrorKind::Model, where, std::string(key) + ": invalid UTF-8 at byte " + std::to_string(*bad));
  return text;
}

}  // namespace

// Parses everything before the tensor data.
class GgufReader {
 public:
  GgufReader(std::string name, std::span<const std::byte> bytes) : bytes_(bytes) { out_.name_ = std::move(name); }

  GgufFile read() {
    uint64_t tensors = 0, keys = 0;
    read_header(tensors, keys);
    for (uint64_t i = 0; i < keys; ++i) read_value();
    const int64_t parts = out_.integer("split.count").value_or(1);
    TENON_CHECK(Model, parts <= 1, file())
        << "is one of " << parts << " parts of a model; join them into one file first";
    for (uint64_t i = 0; i < tensors; ++i) read_tensor();
    place_tensors();
    return std::move(out_);
  }

 private:
  struct Stated {  // a tensor as declared in the file
    std::string name;
    FileBlockType type;
    Shape shape;
    uint64_t offset, size;
  };

  const std::string& file() const { return out_.name_; }
  uint64_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(uint64_t size, const char* what) {
    TENON_CHECK(Model, size <= left(), file()) << "truncated or corrupt: " << what << " at byte " << at_ << " needs "
                                               << size << " bytes, " << left() << " follow";
    const auto out = bytes_.subspan(at_, static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
    return out;
  }
  template <class T>
  T number(const char* what) {
    return load<T>(take(sizeof(T), what));
  }
  std::string_view text(const char* what) {
    const auto length = number<uint64_t>(what);
    const auto data = take(length, what);
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  std::string_view name(const char* what) {
    const std::string_view out = text(what);
    TENON_CHECK(Model, out.size() <= kMaxNameBytes, file())
        << what << " has " << out.size() << " bytes; at most " << kMaxNameBytes << " are read";
    return checked_text(out, file(), what);
  }

  void read_header(uint64_t& tensors, uint64_t& keys) {
    TENON_CHECK(Model, bytes_.size() >= 24 && std::memcmp(bytes_.data(), "GGUF", 4) == 0, file())
        << "not a GGUF file: it does not begin with 'GGUF' and a header of 24 bytes";
    at_ = 4;
    out_.version_ = number<uint32_t>("version");
    TENON_CHECK(Model, out_.version_ == 2 || out_.version_ == 3, file())
        << "GGUF version " << out_.version_ << ((out_.version_ & 0xffff) == 0 ? " (a big-endian file?)" : "")
        << " is not supported; expected 2 or 3, little endian";
    tensors = number<uint64_t>("tensor count");
    keys = number<uint64_t>("metadata count");
    TENON_CHECK(Model, keys <= left() / kMinKeyBytes && tensors <= left() / kMinTensorBytes, file())
        << "claims " << keys << " metadata entries and " << tensors << " tensors; the " << left()
        << " bytes that follow cannot hold them";
  }

  void read_value() {
    const std::string_view key = name("metadata key");
    auto type = number<uint32_t>("metadata type");
    GgufValue value;
    if (type == static_cast<uint32_t>(GgufType::Array)) {
      value.is_array = true;
      type = number<uint32_t>("array type");
      value.count = number<uint64_t>("array length");
    }
    value.type = static_cast<GgufType>(type);
    const bool is_string = type == static_cast<uint32_t>(GgufType::String);
    TENON_CHECK(Model, is_string || number_bytes(value.type) > 0, file())
        << "metadata '" << key << "': unknown type " << type << (value.is_array ? " of an array's elements" : "");
    const size_t begin = at_;
    const uint64_t least = is_string ? 8 : number_bytes(value.type);
    TENON_CHECK(Model, value.count <= left() / least, file())
        << "metadata '" << key << "': an array of " << value.count << " elements does not fit the " << left()
        << " bytes that follow";
    if (is_string)
      for (uint64_t i = 0; i < value.count; ++i) text("metadata string");
    else
      take(value.count * least, "metadata value");
    value.data = bytes_.subspan(begin, at_ - begin);
    TENON_CHECK(Model, out_.values_.emplace(key, value).second, file()) << "metadata '" << key << "' occurs twice";
  }

  void read_tensor() {
    Stated t{std::string(name("tensor name")), {}, {}, 0, 0};
    const std::string where = "tensor '" + t.name + "'";
    const auto extents = number<uint32_t>("tensor extents");
    TENON_CHECK(Model, extents <= kMaxExtents, file())
        << where << ": " << extents << " extents; at most " << kMaxExtents << " are allowed";
    std::array<int64_t, kMaxExtents> dims{};
    uint64_t elements = 1, largest = 1;  // `largest` leaves out zeros: no product of any of the extents exceeds it
    for (uint32_t i = 0; i < extents; ++i) {
      const auto extent = number<uint64_t>("tensor extent");
      TENON_CHECK(
          Model, !__builtin_mul_overflow(largest, std::max<uint64_t>(extent, 1), &largest) && largest <= kLargestTensor,
          file())
          << where << ": has more elements than can be addressed";
      elements *= extent;
      dims[extents - 1 - i] = static_cast<int64_t>(extent);
    }
    t.shape = Shape(std::span<const int64_t>(dims.data(), extents));
    const auto number_of_type = number<uint32_t>("tensor type");
    const auto type = file_block_type(number_of_type);
    TENON_CHECK(Model, type, file()) << where << ": unknown element type " << number_of_type;
    t.type = *type;
    TENON_CHECK(Model, t.shape.cols() % type->elements == 0, file())
        << where << ": rows of " << t.shape.cols() << " elements are not whole blocks of " << type->name << " ("
        << type->elements << " elements)";
    const uint64_t blocks = elements / static_cast<uint64_t>(type->elements);
    TENON_CHECK(Model, !__builtin_mul_overflow(blocks, static_cast<uint64_t>(type->bytes), &t.size), file())
        << where << ": has more bytes than can be addressed";
    t.offset = number<uint64_t>("tensor offset");
    stated_.push_back(std::move(t));
  }

  uint64_t alignment() const {
    const auto stated = out_.integer("general.alignment");
    if (!stated) return 32;
    const auto value = static_cast<uint64_t>(*stated);
    TENON_CHECK(Model, *stated > 0 && std::has_single_bit(value) && value <= kMaxAlignment, file())
        << "general.alignment: expected a power of two up to " << kMaxAlignment << ", found " << *stated;
    return value;
  }

  void place_tensors() {
    const uint64_t align = alignment(), begin = (at_ + align - 1) / align * align;
    const uint64_t data = bytes_.size() > begin ? bytes_.size() - begin : 0;
    std::sort(stated_.begin(), stated_.end(), [](const Stated& a, const Stated& b) {
      return std::tie(a.offset, a.size, a.name) < std::tie(b.offset, b.size, b.name);
    });
    uint64_t end = 0;
    for (const Stated& t : stated_) {
      const std::string where = "tensor '" + t.name + "'";
      TENON_CHECK(Model, t.offset % align == 0, file())
          << where << ": offset " << t.offset << " is not a multiple of the alignment, " << align;
      TENON_CHECK(Model, t.offset <= data && t.size <= data - t.offset, file())
          << where << ": " << t.size << " bytes at offset " << t.offset << " exceed the file's " << data
          << " bytes of data (truncated?)";
      TENON_CHECK(Model, t.size == 0 || t.offset >= end, file())
          << where << ": offset " << t.offset << " overlaps another tensor, which ends at " << end;
      end = std::max(end, t.offset + t.size);
      add(t, bytes_.subspan(std::min<uint64_t>(begin + t.offset, bytes_.size()), t.size));
    }
  }

  void add(const Stated& t, std::span<const std::byte> data) {
    const bool known = out_.tensors_.count(t.name) > 0 || out_.unsupported_.count(t.name) > 0;
    TENON_CHECK(Model, !known, file()) << "tensor '" << t.name << "' occurs twice";
    if (t.type.readable)
      out_.tensors_[t.name] = {t.name, static_cast<BlockType>(t.type.number), t.shape, data};
    else
      out_.unsupported_[t.name] = t.type.name;
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  std::vector<Stated> stated_;
  GgufFile out_;
};

GgufFile GgufFile::from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return GgufReader(name, bytes).read();
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  MappedFile file = MappedFile::open(path);
  GgufFile out = from_bytes(file.bytes(), path.string());
  out.file_ = std::move(file);
  return out;
}

std::string GgufFile::architecture() const {
  const auto found = string("general.architecture");
  TENON_CHECK(Model, found && !found->empty(), name_) << "has no metadata 'general.architecture'";
  return std::string(*found);
}

const GgufValue* GgufFile::find(std::string_view key, bool array) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  TENON_CHECK(Model, found->second.is_array == array, name_)
      << key << ": expected " << (array ? "an array, found " : "one value, found an array of ")
      << kind_name(found->second);
  return &found->second;
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufValue* v = find(key, false);
  if (!v) return std::nullopt;
  TENON_CHECK(Model, v->type == GgufType::String, name_) << key << ": expected a string, found " << kind_name(*v);
  return checked_text({reinterpret_cast<const char*>(v->data.data()) + 8, v->data.size() - 8}, name_, key);
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* v = find(key, false);
  return v ? std::optional(integer_at(*v, 0, name_, key)) : std::nullopt;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* v = find(key, false);
  return v ? std::optional(number_at(*v, 0, name_, key)) : std::nullopt;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* v = find(key, false);
  if (!v) return std::nullopt;
  const auto byte = v->type == GgufType::Bool ? load<uint8_t>(v->data) : uint8_t{2};
  TENON_CHECK(Model, byte < 2, name_) << key << ": expected true or false, found " << kind_name(*v);
  return byte != 0;
}

std::vector<std::string_view> GgufFile::strings(std::string_view key) const {
  const GgufValue* v = find(key, true);
  std::vector<std::string_view> out;
  if (!v) return out;
  TENON_CHECK(Model, v->type == GgufType::String, name_)
      << key << ": expected an array of strings, found one of " << kind_name(*v);
  out.reserve(static_cast<size_t>(v->count));
  for (size_t at = 0; at < v->data.size();) {
    const auto length = static_cast<size_t>(load<uint64_t>(v->data, at));
    out.push_back(checked_text({reinterpret_cast<const char*>(v->data.data()) + at + 8, length}, name_, key));
    at += 8 + length;
  }
  return out;
}

std::vector<int64_t> GgufFile::integers(std::string_view key) const {
  const GgufValue* v = find(key, true);
  std::vector<int64_t> out;
  for (size_t i = 0; v && i < v->count; ++i) out.push_back(integer_at(*v, i, name_, key));
  return out;
}

std::vector<double> GgufFile::numbers(std::string_view key) const {
  const GgufValue* v = find(key, true);
  std::vector<double> out;
  for (size_t i = 0; v && i < v->count; ++i) out.push_back(number_at(*v, i, name_, key));
  return out;
}

const GgufTensor& GgufFile::at(std::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  if (found != tensors_.end()) return found->second;
  const auto foreign = unsupported_.find(tensor);
  TENON_CHECK(Model, foreign == unsupported_.end(), name_)
      << "tensor '" << tensor << "' has the element type " << foreign->second << ", which is not supported";
  throw Error(ErrorKind::Model, name_, "there is no tensor '" + std::string(tensor) + "'");
}

}  // namespace tenon
