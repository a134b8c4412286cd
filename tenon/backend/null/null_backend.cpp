#include "tenon/backend/null/null_backend.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <mutex>

#include "tenon/backend/list_body.h"
#include "tenon/backend/null/contents.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon::null {
namespace {

struct Record {
  std::mutex mutex;
  std::vector<std::string> names;
};
Record& recorded() {
  static Record all;
  return all;
}

void add(const std::string& name) {
  const std::lock_guard lock(recorded().mutex);
  recorded().names.push_back(name);
}

Contents& contents() {
  static Contents& all = *new Contents;  // never destroyed: statics may still free memory later
  return all;
}

// A kernel that only checks the buffers it reads.
class NullKernel : public Kernel {
 public:
  explicit NullKernel(const Launch& launch) : name_(launch.name) {
    std::vector<Expr> values;
    for (const Output& o : launch.outputs) {
      const bool update = is_update(o.value);
      writes_.push_back({o.buffer, bytes_of(o.value.shape(), o.value.dtype()), update ? version_of(o.value) : -1});
      values.push_back(o.value);
    }
    for (const Expr& e : below(values))
      if (is_memory_leaf(e) && !e.is<nodes::Param>())
        reads_.push_back({e->attrs.text, bytes_of(e.shape(), e.dtype()), e.is<nodes::State>() ? version_of(e) : -1});
  }
  LaunchMemory memory() const override { return {}; }
  std::span<const WeightRequest> weights() const override { return {}; }
  void bind(const BufferTable& buffers, std::span<void* const>, void*) override { rebind(buffers); }
  void run(Stream&, void* scratch) override {
    const TouchingRun by{scratch, ++runs_, name_};  // scratch identifies the executable
    for (const Touched& t : reads_)
      if (t.address) contents().read(t, by);
    for (const Touched& t : writes_)
      if (t.address) contents().write(t, by);
    add(name_);
  }
  void rebind(const BufferTable& buffers) override {
    for (Touched& t : reads_) t.address = buffers(t.buffer);
    for (Touched& t : writes_)
      if ((t.address = buffers(t.buffer))) contents().promise(t);
    for (const Touched& r : reads_)
      for (const Touched& w : writes_)
        TENON_CHECK(Internal, !overlap(r, w), name_)
            << "writes '" << w.buffer << "' over '" << r.buffer << "', which it reads";
  }
  std::string describe() const override { return "recorded"; }

 private:
  static bool overlap(const Touched& a, const Touched& b) {
    if (!a.address || !b.address || !a.bytes || !b.bytes) return false;
    const auto* begin_a = static_cast<const std::byte*>(a.address);
    const auto* begin_b = static_cast<const std::byte*>(b.address);
    return begin_a < begin_b + b.bytes && begin_b < begin_a + a.bytes;
  }

  std::string name_;
  std::vector<Touched> reads_, writes_;
  int64_t runs_ = 0;
};

class NullListKernel : public ListBody {
 public:
  explicit NullListKernel(const Launch& launch) : ListBody(launch) {}
  void run(Stream&, std::span<const ListItem> items, std::span<const float> scalars) override {
    check(items, scalars, false);
    add(name_);
  }
  int64_t find(Stream&, std::span<const ListItem> items, std::span<const float> scalars) override {
    check(items, scalars, true);
    add(name_);
    return -1;
  }
  std::string describe() const override { return "recorded"; }
};

class NullBackend : public Backend {
 public:
  std::string_view name() const override { return "null"; }
  std::string describe() const override { return "null, records launches"; }
  bool computes() const override { return false; }
  int64_t memory_available() const override { return std::numeric_limits<int64_t>::max(); }
  std::vector<DType> types() const override { return {DType::BF16, DType::F16, DType::F32}; }
  Target target() const override { return {}; }
  /// Zero-filled memory: inputs may be set and outputs read, though nothing is ever computed.
  std::shared_ptr<void> allocate(int64_t bytes) override {
    void* p = std::calloc(static_cast<size_t>(bytes / 64 + 2), 64);  // untouched zero pages cost nothing
    if (!p) throw Error(ErrorKind::Memory, "memory", "cannot allocate " + std::to_string(bytes) + " bytes");
    const uintptr_t aligned = (reinterpret_cast<uintptr_t>(p) + 63) / 64 * 64;
    return std::shared_ptr<void>(reinterpret_cast<void*>(aligned), [p, bytes](void* memory) {
      contents().forget(memory, bytes + 1, true);
      std::free(p);
    });
  }
  std::unique_ptr<Kernel> make_kernel(const Launch& launch) override {
    TENON_CHECK(Internal, launch.form != nullptr, launch.name) << "has no form";
    return std::make_unique<NullKernel>(launch);
  }
  std::unique_ptr<ListKernel> prepare_list(const Launch& launch) override {
    return std::make_unique<NullListKernel>(launch);
  }
  void copy(Stream&, void* dst, const void* src, int64_t bytes) override {
    contents().forget(dst, bytes, false);
    std::memcpy(dst, src, static_cast<size_t>(bytes));
  }
  void copy_in(Stream&, void* dst, const void* src, int64_t bytes) override {
    contents().forget(dst, bytes, false);
    std::memcpy(dst, src, static_cast<size_t>(bytes));
  }
  void copy_out(Stream&, void* dst, const void* src, int64_t bytes) override {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
  }
};

const RegisterBackend kRegistered("null", [](const BackendOptions&) -> std::unique_ptr<Backend> {
  return std::make_unique<NullBackend>();
});

}  // namespace

std::vector<std::string> record() {
  const std::lock_guard lock(recorded().mutex);
  return recorded().names;
}
void clear_record() {
  const std::lock_guard lock(recorded().mutex);
  recorded().names.clear();
}

}  // namespace tenon::null
