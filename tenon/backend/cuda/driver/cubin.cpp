#include "tenon/backend/cuda/driver/cubin.h"

#include <algorithm>
#include <cstring>

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

// Attributes of .nv.info (per file: symbol index and value) and .nv.info.<kernel> (per kernel).
enum CubinAttribute : uint8_t {
  kMaxThreads = 0x05,
  kFrameSize = 0x11,
  kMinStackSize = 0x12,
  kParameter = 0x17,  // one per parameter: its size is in the upper 14 bits of the third word
  kParameterBytes = 0x19,
  kRegisters = 0x2f,
  kLargeParameter = 0x45,  // replaces kParameter if that cannot hold the size, which is then the third word
  kBarriers = 0x4c,
};
constexpr size_t kInstructionBytes = 16, kMaxSections = 65536, kReservedShared = 1024;
constexpr ptrdiff_t kLongestName = 1024;
constexpr uint32_t kSymbolTable = 2, kNoBits = 8;

struct Section {
  std::string name;
  uint32_t type = 0, link = 0;
  uint64_t offset = 0, size = 0;
};
struct InfoItem {
  uint8_t attribute = 0;
  std::span<const std::byte> value;
};

// Bounds-checked reader for untrusted files.
class Elf {
 public:
  explicit Elf(std::span<const std::byte> file) : file_(file) {
    static constexpr unsigned char kMagic[] = {0x7f, 'E', 'L', 'F', 2, 1};  // 64 bits, little endian
    require(file.size() >= 64 && std::memcmp(file.data(), kMagic, sizeof kMagic) == 0, "is not a 64-bit ELF file");
    const uint64_t table = read<uint64_t>(0x28);
    const size_t entry = read<uint16_t>(0x3a), count = read<uint16_t>(0x3c), names = read<uint16_t>(0x3e);
    require(entry >= 64 && count <= kMaxSections && names < count, "has no section table");
    for (size_t i = 0; i < count; ++i) {
      const uint64_t at = table + i * entry;
      sections_.push_back({.name = {},
                           .type = read<uint32_t>(at + 4),
                           .link = read<uint32_t>(at + 40),
                           .offset = read<uint64_t>(at + 24),
                           .size = read<uint64_t>(at + 32)});
      name_offsets_.push_back(read<uint32_t>(at));
    }
    for (size_t i = 0; i < count; ++i) sections_[i].name = text(sections_[names], name_offsets_[i]);
  }

  const std::vector<Section>& sections() const { return sections_; }
  std::span<const std::byte> bytes(const Section& section) const {
    if (section.type == kNoBits) return {};
    require(section.offset <= file_.size() && section.size <= file_.size() - section.offset,
            "has a section outside the file");
    return file_.subspan(section.offset, section.size);
  }
  const Section* find(const std::string& name) const {
    const auto it = std::find_if(sections_.begin(), sections_.end(), [&](const Section& s) { return s.name == name; });
    return it == sections_.end() ? nullptr : &*it;
  }
  // Symbol names, by index.
  std::vector<std::string> symbols() const {
    std::vector<std::string> names;
    for (const Section& section : sections_) {
      if (section.type != kSymbolTable) continue;
      require(section.link < sections_.size(), "has symbols without names");
      const std::span<const std::byte> table = bytes(section);
      for (size_t at = 0; at + 24 <= table.size(); at += 24)
        names.push_back(text(sections_[section.link], value<uint32_t>(table, at)));
      break;
    }
    return names;
  }

  template <class T>
  static T value(std::span<const std::byte> from, size_t at) {
    require(at <= from.size() && sizeof(T) <= from.size() - at, "is truncated");
    T out;
    std::memcpy(&out, from.data() + at, sizeof out);
    return out;
  }
  static void require(bool condition, const char* what) {
    TENON_CHECK(Device, condition, "cubin") << "the machine code " << what;
  }

 private:
  template <class T>
  T read(uint64_t at) const {
    require(at <= file_.size(), "is truncated");
    return value<T>(file_, at);
  }
  // A name ends at its NUL. Its length is bounded, so that overlapping names cannot add up to more than fits in memory.
  std::string text(const Section& strings, uint32_t at) const {
    const std::span<const std::byte> table = bytes(strings);
    require(at < table.size() || at == 0, "has a name outside its table");
    const auto end = std::find(table.begin() + at, table.end(), std::byte{0});
    require(end - table.begin() - at <= kLongestName, "has a name that is too long");
    return {reinterpret_cast<const char*>(table.data()) + at, static_cast<size_t>(end - table.begin()) - at};
  }

  std::span<const std::byte> file_;
  std::vector<Section> sections_;
  std::vector<uint32_t> name_offsets_;
};

// An info section is a sequence of items: format, attribute, then a 16-bit value (formats 1 to 3) or a size and that
// many bytes (4).
std::vector<InfoItem> info_items(std::span<const std::byte> bytes) {
  std::vector<InfoItem> items;
  for (size_t at = 0; at + 4 <= bytes.size();) {
    const uint8_t format = Elf::value<uint8_t>(bytes, at), attribute = Elf::value<uint8_t>(bytes, at + 1);
    const size_t size = format == 4 ? Elf::value<uint16_t>(bytes, at + 2) : 0;
    Elf::require(size <= bytes.size() - at - 4, "has an attribute outside its section");
    items.push_back({attribute, format == 4 ? bytes.subspan(at + 4, size) : bytes.subspan(at + 2, 2)});
    at += 4 + size;
  }
  return items;
}

int small(uint32_t value) { return static_cast<int>(std::min<uint32_t>(value, 0x7fffffff)); }

void read_file_info(const Elf& elf, const std::vector<std::string>& symbols, CubinKernel& kernel) {
  const Section* section = elf.find(".nv.info");
  if (!section) return;
  for (const InfoItem& item : info_items(elf.bytes(*section))) {
    if (item.value.size() < 8) continue;
    const uint32_t symbol = Elf::value<uint32_t>(item.value, 0), value = Elf::value<uint32_t>(item.value, 4);
    if (symbol >= symbols.size() || symbols[symbol] != kernel.name) continue;
    if (item.attribute == kRegisters) kernel.registers = small(value);
    if (item.attribute == kFrameSize || item.attribute == kMinStackSize)
      kernel.stack_bytes = std::max(kernel.stack_bytes, small(value));
  }
}

void read_kernel_info(const Elf& elf, CubinKernel& kernel) {
  const Section* section = elf.find(".nv.info." + kernel.name);
  if (!section) return;
  for (const InfoItem& item : info_items(elf.bytes(*section))) {
    if (item.attribute == kParameter)
      kernel.argument_bytes += static_cast<int>(Elf::value<uint32_t>(item.value, 8) >> 18);
    if (item.attribute == kLargeParameter)
      kernel.argument_bytes += static_cast<int>(Elf::value<uint16_t>(item.value, 8));
    if (item.attribute == kParameterBytes) kernel.parameter_bytes = Elf::value<uint16_t>(item.value, 0);
    if (item.attribute == kBarriers) kernel.barriers = Elf::value<uint8_t>(item.value, 0);
    if (item.attribute != kMaxThreads || item.value.size() < 12) continue;
    uint64_t threads = 1;
    for (size_t i = 0; i < 3; ++i)
      threads = std::min<uint64_t>(threads * Elf::value<uint32_t>(item.value, 4 * i), 65536);
    kernel.max_threads = static_cast<int>(threads);
  }
}

void count_access(uint64_t high, Accesses& accesses) {
  switch (high >> 9 & 7) {
    case 6:
      ++accesses.bytes16;
      break;
    case 5:
      ++accesses.bytes8;
      break;
    case 4:
      ++accesses.bytes4;
      break;
    default:
      ++accesses.narrower;
  }
}

void read_instructions(std::span<const std::byte> code, CubinKernel& kernel) {
  for (size_t at = 0; at + kInstructionBytes <= code.size(); at += kInstructionBytes) {
    const uint64_t low = Elf::value<uint64_t>(code, at), high = Elf::value<uint64_t>(code, at + 8);
    const int opcode = static_cast<int>(low & 0x1ff);
    ++kernel.opcodes[opcode];
    if (opcode == static_cast<int>(Opcode::LoadGlobal) || opcode == static_cast<int>(Opcode::CopyAsync))
      count_access(high, kernel.loads);
    if (opcode == static_cast<int>(Opcode::StoreGlobal)) count_access(high, kernel.stores);
  }
}

// The section's size includes shared memory reserved by the system, if there is any.
void read_shared(const Elf& elf, CubinKernel& kernel) {
  const Section* section = elf.find(".nv.shared." + kernel.name);
  if (!section) return;
  const uint64_t reserved = elf.find(".nv.shared.reserved.0") ? kReservedShared : 0;
  const uint64_t bytes = section->size > reserved ? section->size - reserved : 0;
  kernel.static_shared_bytes = small(static_cast<uint32_t>(std::min<uint64_t>(bytes, 0x7fffffff)));
}

}  // namespace

int CubinKernel::count(Opcode opcode) const {
  const auto it = opcodes.find(static_cast<int>(opcode));
  return it == opcodes.end() ? 0 : it->second;
}

std::vector<CubinKernel> read_cubin(std::span<const std::byte> cubin) {
  const Elf elf(cubin);
  const std::vector<std::string> symbols = elf.symbols();
  std::vector<CubinKernel> kernels;
  for (const Section& section : elf.sections()) {
    const std::string prefix = ".text.";
    if (!section.name.starts_with(prefix)) continue;
    CubinKernel& kernel = kernels.emplace_back();
    kernel.name = section.name.substr(prefix.size());
    read_file_info(elf, symbols, kernel);
    read_kernel_info(elf, kernel);
    read_shared(elf, kernel);
    read_instructions(elf.bytes(section), kernel);
    Elf::require(kernels.size() <= 1024, "has more than 1024 kernels");
  }
  return kernels;
}

CubinKernel read_cubin_kernel(std::span<const std::byte> cubin, const std::string& name) {
  for (CubinKernel& kernel : read_cubin(cubin))
    if (kernel.name == name) return std::move(kernel);
  throw Error(ErrorKind::Device, "cubin", "the machine code has no kernel '" + name + "'");
}

}  // namespace tenon::cuda
