#include "tenon/backend/cpu/launches/list_kernel.h"

#include <algorithm>
#include <atomic>

#include "tenon/backend/cpu/host_memory.h"
#include "tenon/backend/list_body.h"
#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {

// A chunk moves at most this many bytes: many blocks per start-up, yet enough chunks to distribute.
constexpr int64_t kChunkBytes = int64_t{1} << 20;

class TapeListKernel : public ListBody {
 public:
  TapeListKernel(std::shared_ptr<Engine> engine, const Launch& launch) : ListBody(launch), engine_(std::move(engine)) {
    std::vector<TapeOutput> outputs;
    for (const FormOutput& o : list_.form.outputs)
      outputs.push_back({o.value, list_.finds ? Expr() : o.place, o.dtype});
    TapeOptions options;
    options.elementwise = true;
    tape_ = std::make_unique<Tape>(outputs, list_.form.domain, leaves_, engine_->vec, options);
    chunk_ = std::max<int64_t>(kChunkBytes / list_.bytes_per_element() / kChunkUnit, 1) * kChunkUnit;
    TENON_CHECK(Internal, leaves_.size() <= kMaxLeaves, launch.name) << "it reads " << leaves_.size() << " leaves";
    for (int i = 0; i < leaves_.size(); ++i) sources_.push_back(source_of(leaves_.leaf(i)));
    workspace_bytes_ = round_up(tape_->workspace_bytes(), 64) + (list_.finds ? kFindBlock * 4 : 0);
    workspace_ = allocate_host(workspace_bytes_ * engine_->pool.threads());
  }

  void run(Stream&, std::span<const ListItem> items, std::span<const float> scalars) override {
    check(items, scalars, false);
    cut(items);
    engine_->pool.parallel_for(static_cast<int64_t>(chunks_.size()), [&](int64_t task, int thread) {
      const Chunk& c = chunks_[static_cast<size_t>(task)];
      evaluate(items[c.item], scalars, c.begin, c.count, thread, nullptr);
    });
  }

  int64_t find(Stream&, std::span<const ListItem> items, std::span<const float> scalars) override {
    check(items, scalars, true);
    cut(items);
    std::atomic<size_t> first{items.size()};
    engine_->pool.parallel_for(static_cast<int64_t>(chunks_.size()), [&](int64_t task, int thread) {
      const Chunk& c = chunks_[static_cast<size_t>(task)];
      if (c.item >= first.load(std::memory_order_relaxed) || !found_in(items[c.item], scalars, c, thread)) return;
      size_t known = first.load();
      while (c.item < known && !first.compare_exchange_weak(known, c.item)) {
      }
    });
    return first.load() == items.size() ? -1 : static_cast<int64_t>(first.load());
  }

  std::string describe() const override {
    return std::string(engine_->vec.name) + " tape of " + std::to_string(tape_->length()) + ", chunks of " +
           std::to_string(chunk_) + " elements";
  }

 private:
  // Chunks begin on a cache line for every element type, if their vector does.
  static constexpr int64_t kChunkUnit = 1024, kFindBlock = 2048;
  static constexpr int kMaxLeaves = 32;

  struct Chunk {
    size_t item;
    int64_t begin, count;
  };
  // Where a leaf of the tape comes from: a vector of the item, a scalar of the run, or a literal.
  struct Source {
    int vector = -1, scalar = -1;
    const void* literal = nullptr;
  };

  Source source_of(const Expr& leaf) const {
    Source s;
    s.literal = leaves_.literal(leaves_.find(leaf));
    const std::string& name = leaf->attrs.text;
    const auto position = [&name](const std::vector<std::string>& names) {
      const auto at = std::find(names.begin(), names.end(), name);
      return at == names.end() ? -1 : static_cast<int>(at - names.begin());
    };
    if (leaf.is<nodes::ScalarInput>())
      s.scalar = position(list_.scalars);
    else if (!s.literal)
      s.vector = position(names_);
    return s;
  }

  void cut(std::span<const ListItem> items) {
    chunks_.clear();
    for (size_t i = 0; i < items.size(); ++i) {
      const int64_t count = items[i].count, parts = div_up(count, chunk_);
      const int64_t each = parts ? round_up(div_up(count, parts), kChunkUnit) : 1;
      for (int64_t at = 0; at < count; at += each) chunks_.push_back({i, at, std::min(each, count - at)});
    }
  }

  void evaluate(const ListItem& item, std::span<const float> scalars, int64_t begin, int64_t count, int thread,
                float* rows) const {
    std::array<const void*, kMaxLeaves> bases{};
    for (size_t i = 0; i < sources_.size(); ++i) {
      const Source& s = sources_[i];
      if (s.vector >= 0)
        bases[i] = static_cast<const std::byte*>(item.vectors[static_cast<size_t>(s.vector)]) +
                   begin * size_of(list_.vectors[static_cast<size_t>(s.vector)].dtype);
      else
        bases[i] = s.scalar >= 0 ? &scalars[static_cast<size_t>(s.scalar)] : s.literal;
    }
    tape_->stream(bases.data(), count, workspace(thread), rows);
  }

  bool found_in(const ListItem& item, std::span<const float> scalars, const Chunk& c, int thread) const {
    float* rows = reinterpret_cast<float*>(workspace(thread) + round_up(tape_->workspace_bytes(), 64));
    for (int64_t at = 0; at < c.count; at += kFindBlock) {
      const int64_t n = std::min(kFindBlock, c.count - at);
      evaluate(item, scalars, c.begin + at, n, thread, rows);
      int any = 0;
      for (int64_t i = 0; i < n; ++i) any |= rows[i] != 0.0f;
      if (any) return true;
    }
    return false;
  }

  std::byte* workspace(int thread) const {
    return static_cast<std::byte*>(workspace_.get()) + thread * workspace_bytes_;
  }

  std::shared_ptr<Engine> engine_;
  LeafTable leaves_;
  std::unique_ptr<Tape> tape_;
  std::vector<Source> sources_;
  std::vector<Chunk> chunks_;
  std::shared_ptr<void> workspace_;
  int64_t workspace_bytes_ = 0, chunk_ = 0;
};

}  // namespace

std::unique_ptr<ListKernel> make_list_kernel(std::shared_ptr<Engine> engine, const Launch& launch) {
  return std::make_unique<TapeListKernel>(std::move(engine), launch);
}

}  // namespace tenon::cpu
