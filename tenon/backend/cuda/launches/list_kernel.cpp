// A launch over lists: one kernel whose argument holds the list.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "tenon/backend/cuda/codegen/program_source.h"
#include "tenon/backend/cuda/device/launches/list_sizes.h"
#include "tenon/backend/cuda/launches/launch_kernel.h"
#include "tenon/backend/list_body.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

// Elements per block: enough for several loads in flight per thread, and enough blocks that the last ones end together.
constexpr int32_t kChunk = 4096;
constexpr unsigned kThreads = 256;
constexpr int64_t kMaxBlocks = int64_t{1} << 30;

void append(std::vector<std::byte>& bytes, const void* from, size_t count) {
  const size_t at = bytes.size();
  bytes.resize(at + count);
  std::memcpy(bytes.data() + at, from, count);
}

template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
  append(bytes, &value, sizeof(value));
}

class DeviceListKernel : public ListBody {
 public:
  DeviceListKernel(std::shared_ptr<Device> device, const Launch& launch)
      : ListBody(launch), device_(std::move(device)) {
    compile();
    if (list_.finds) found_ = device_->allocate(sizeof(uint32_t));
  }

  void run(Stream& stream, std::span<const ListItem> items, std::span<const float> scalars) override {
    check(items, scalars, false);
    enqueue(stream, items, scalars);
  }
  int64_t find(Stream& stream, std::span<const ListItem> items, std::span<const float> scalars) override;
  std::string describe() const override {
    return "one kernel, " + std::to_string(width_) + " elements a thread at a time, up to " +
           std::to_string(variants_.back().most) + " tensors a call";
  }

 private:
  // The kernel for lists of up to `most` items, the number that its argument has room for.
  struct Variant {
    size_t most = 0;
    std::shared_ptr<Function> function;
  };

  void compile();
  std::string binding(const Params& params) const;
  std::string code(const Params& params, size_t most) const;
  std::vector<std::byte> head(std::span<const float> scalars) const;
  size_t entry_bytes() const { return 8 * names_.size() + 16; }
  bool wide(const ListItem& item) const;
  void enqueue(Stream& stream, std::span<const ListItem> items, std::span<const float> scalars);
  void append_entry(std::vector<std::byte>& bytes, const ListItem& item, int64_t first_chunk) const;
  void start(Stream& stream, std::vector<std::byte>& argument, size_t head_bytes, int32_t count, int64_t blocks,
             int64_t first, int64_t total);

  std::shared_ptr<Device> device_;
  int width_ = 1;
  std::string headers_, functors_;
  std::vector<std::byte> base_;    // the programs' own argument, without its pointers
  std::vector<Variant> variants_;  // smallest first
  std::shared_ptr<void> found_;
};

// ---- source ---------------------------------------------------------------------------------------------------------

void DeviceListKernel::compile() {
  std::vector<ProgramOutput> outputs;
  for (const FormOutput& o : list_.form.outputs) outputs.push_back({o.value, list_.finds ? Expr() : o.place, o.dtype});
  const MatrixDomain domain = matrix_domain(list_.form.domain, false);
  Params params;
  ProgramSource program(outputs, domain, params, 8), single(outputs, domain, params, 1);
  width_ = program.width();
  functors_ = program.functor("Program") + single.functor("Single");
  headers_ = "#include \"tenon/backend/cuda/device/launches/list.h\"\n" + program.includes();
  base_ = params.bytes();
  const size_t head_bytes = head(std::vector<float>(list_.scalars.size())).size();
  for (const int bytes : {4096, device_->facts().argument_bytes}) {
    const size_t most = (static_cast<size_t>(bytes) - head_bytes) / entry_bytes();
    if (!variants_.empty() && variants_.back().most == most) continue;
    KernelSource source;
    source.name = name_ + ", lists of up to " + std::to_string(most);
    source.code = code(params, most);
    source.exact = true;
    variants_.push_back({most, device_->load(source)});
  }
}

// Statements that set the pointers in `q` to chunk `c`.
std::string DeviceListKernel::binding(const Params& params) const {
  std::string out;
  for (const Params::Pointer& pointer : params.pointers()) {
    const std::string& leaf = pointer.leaf->attrs.text;
    if (pointer.leaf.is<nodes::ScalarInput>()) {
      const auto at = std::find(list_.scalars.begin(), list_.scalars.end(), leaf) - list_.scalars.begin();
      out += "  q." + pointer.name + " = &p.scalars[" + std::to_string(at) + "];\n";
      continue;
    }
    const auto at = std::find(names_.begin(), names_.end(), leaf) - names_.begin();
    const std::string type = (pointer.written ? "" : "const ") + type_source(pointer.leaf.dtype()) + "*";
    out += "  q." + pointer.name + " = static_cast<" + type + ">(p.items[c.item].vectors[" + std::to_string(at) +
           "]) + c.begin;\n";
  }
  return out;
}

std::string DeviceListKernel::code(const Params& params, size_t most) const {
  const std::string scalars = std::to_string((std::max<size_t>(list_.scalars.size(), 1) + 1) / 2 * 2);
  const std::string argument = "struct ListParams {\n  ListSizes sizes;\n  float scalars[" + scalars +
                               "];\n  Params base;\n  ListEntry<" + std::to_string(names_.size()) + "> items[" +
                               std::to_string(most) + "];\n};\n";
  const std::string call = list_.finds ? "  list_find<Program, Single>(q, c, p.sizes.found, p.sizes.last - c.item);\n"
                                       : "  list_map<Program, Single>(q, c);\n";
  return "#define TENON_DEVICE\n" + headers_ + "\nnamespace tenon::device {\n" + params.declaration() + argument +
         functors_ + "}  // namespace tenon::device\nusing namespace tenon::device;\n" +
         "KERNEL(kListThreads, 4, ListParams, p) {\n  const ListChunk c = list_chunk(p);\n  Params q = p.base;\n" +
         binding(params) + call + "}\n";
}

// ---- run ----------------------------------------------------------------------------------------------------------

// The part of the argument before the items.
std::vector<std::byte> DeviceListKernel::head(std::span<const float> scalars) const {
  std::vector<std::byte> bytes;
  device::ListSizes sizes{};
  sizes.chunk = kChunk;
  sizes.found = static_cast<uint32_t*>(found_.get());
  append(bytes, sizes);
  for (const float s : scalars) append(bytes, s);
  bytes.resize(sizeof(sizes) + (std::max<size_t>(scalars.size(), 1) + 1) / 2 * 2 * sizeof(float));
  append(bytes, base_.data(), base_.size());
  return bytes;
}

bool DeviceListKernel::wide(const ListItem& item) const {
  for (size_t v = 0; v < names_.size(); ++v) {
    const int64_t fragment = std::min<int64_t>(width_ * size_of(list_.vectors[v].dtype), kLeafAlignment);
    if (reinterpret_cast<uintptr_t>(item.vectors[v]) % static_cast<uintptr_t>(fragment)) return false;
  }
  return true;
}

void DeviceListKernel::append_entry(std::vector<std::byte>& bytes, const ListItem& item, int64_t first_chunk) const {
  for (size_t v = 0; v < names_.size(); ++v) append(bytes, item.vectors[v]);
  append(bytes, item.count);
  append(bytes, static_cast<int32_t>(first_chunk));
  append(bytes, static_cast<int32_t>(wide(item)));
}

void DeviceListKernel::enqueue(Stream& stream, std::span<const ListItem> items, std::span<const float> scalars) {
  std::vector<std::byte> argument = head(scalars);
  const size_t head_bytes = argument.size();
  int32_t count = 0;
  int64_t blocks = 0, first = 0;
  const auto total = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < total; ++i) {
    const ListItem& item = items[static_cast<size_t>(i)];
    const int64_t more = div_up(item.count, kChunk);
    TENON_CHECK(Memory, more <= kMaxBlocks, name_)
        << "a tensor of " << item.count << " elements is too large for one kernel call";
    if (static_cast<size_t>(count) == variants_.back().most || blocks + more > kMaxBlocks) {
      start(stream, argument, head_bytes, count, blocks, first, total);
      argument.resize(head_bytes);
      count = 0, blocks = 0;
    }
    // Items are numbered by their position in the list, so an empty item takes a slot too unless it comes first.
    if (count == 0) first = i;
    if (count == 0 && more == 0) continue;
    append_entry(argument, item, blocks);
    ++count, blocks += more;
  }
  if (count) start(stream, argument, head_bytes, count, blocks, first, total);
}

void DeviceListKernel::start(Stream& stream, std::vector<std::byte>& argument, size_t head_bytes, int32_t count,
                             int64_t blocks, int64_t first, int64_t total) {
  const Variant& variant = *std::find_if(variants_.begin(), variants_.end(),
                                         [&](const Variant& v) { return static_cast<size_t>(count) <= v.most; });
  argument.resize(head_bytes + variant.most * entry_bytes());
  const auto last = static_cast<uint32_t>(total - first);
  std::memcpy(argument.data() + offsetof(device::ListSizes, items), &count, sizeof(count));
  std::memcpy(argument.data() + offsetof(device::ListSizes, last), &last, sizeof(last));
  CallShape shape;
  shape.threads = kThreads;
  shape.grid_x = blocks;
  variant.function->enqueue(stream, shape, argument);
}

int64_t DeviceListKernel::find(Stream& stream, std::span<const ListItem> items, std::span<const float> scalars) {
  check(items, scalars, true);
  device_->fill_zero(stream, found_.get(), sizeof(uint32_t));
  enqueue(stream, items, scalars);
  uint32_t from_end = 0;
  device_->copy_out(stream, &from_end, found_.get(), sizeof(from_end));
  return from_end ? static_cast<int64_t>(items.size()) - from_end : -1;
}

}  // namespace

std::unique_ptr<ListKernel> make_list_kernel(std::shared_ptr<Device> device, const Launch& launch) {
  return std::make_unique<DeviceListKernel>(std::move(device), launch);
}

}  // namespace tenon::cuda
