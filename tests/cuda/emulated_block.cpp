#include "tests/cuda/emulated_block.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "tenon/core/dtype.h"

namespace tenon::cuda::test {
namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr unsigned char kPoison = 0xff;  // a NaN in every element type
constexpr size_t kSharedGuard = 4096;    // poisoned bytes after shared memory that must stay unchanged
constexpr size_t kSharedAlign = 1024;

}  // namespace

Block::Block() {
  void* memory = mmap(nullptr, kStackBytes * kMaxBlockThreads, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stacks_ = static_cast<unsigned char*>(memory);
}

Block::~Block() { munmap(stacks_, kStackBytes * kMaxBlockThreads); }

void Block::prepare(const CallShape& shape) {
  threads = static_cast<int>(shape.threads);
  const auto count = static_cast<size_t>(shape.threads);
  fibers_.assign(count, Fiber{});
  ready_.clear();
  meetings_[0].assign((count + 31) / 32, Meeting{});
  meetings_[1].assign((count + 127) / 128, Meeting{});
  for (Barrier& b : barriers_) b = Barrier{};
  phase_barriers_.clear();
  phase_waiters_.clear();
  box_copies_.clear();
  box_stores_.clear();
  products_.assign((count + 127) / 128, WarpgroupProducts{});
  cluster_waiters_.clear();
  counter_waiters_.clear();
  grid_waiters_.clear();
  waited_ = false, starts_next_ = shape.starts_next;
  current = nullptr;
  shared_bytes_ = static_cast<unsigned>(shape.shared_bytes);
  shared_store_.resize(shared_bytes_ + kSharedGuard + kSharedAlign);
  const auto start = reinterpret_cast<uintptr_t>(shared_store_.data());
  shared = shared_store_.data() + (kSharedAlign - start % kSharedAlign) % kSharedAlign;
  std::memset(shared, kPoison, shared_bytes_ + kSharedGuard);
  std::string().swap(error_);  // release memory that fail() would swap
}

void Block::start(KernelEntry kernel, const void* params, const CallShape& shape, const int64_t (&at)[3]) {
  prepare(shape);
  kernel_ = kernel, params_ = params;
  const int64_t size[3] = {shape.grid_x, shape.grid_y, shape.grid_z};
  for (int i = 0; i < 3; ++i) block[i] = static_cast<int>(at[i]), grid[i] = static_cast<int>(size[i]);
  block[0] += cluster_rank;
  for (int i = 0; i < threads; ++i) {
    const int t = backwards_ ? threads - 1 - i : i;
    fibers_[static_cast<size_t>(t)].context = make_fcontext(stack_of(t) + kStackBytes, kStackBytes, fiber_main);
    ready_.push_back(t);
  }
}

// Runs threads until all are waiting; false if none could run.
bool Block::run_ready() {
  if (ready_.empty()) return false;
  while (error_.empty() && !ready_.empty()) {
    const auto next = backwards_ ? std::max_element(ready_.begin(), ready_.end()) : ready_.begin();
    const int t = *next;
    ready_.erase(next);
    resume(t);
  }
  return true;
}

void Block::finish() {
  if (error_.empty()) error_ = stuck();
  if (error_.empty() &&
      std::any_of(shared + shared_bytes_, shared + shared_bytes_ + kSharedGuard, [](auto c) { return c != kPoison; }))
    error_ = "wrote behind its " + std::to_string(shared_bytes_) + " bytes of shared memory";
  if (!error_.empty())
    throw error_ + " (block " + std::to_string(block[0]) + ", " + std::to_string(block[1]) + ", " +
        std::to_string(block[2]) + ")";
}

void Block::run(std::span<Block* const> cluster, KernelEntry kernel, const void* params, const CallShape& shape,
                const int64_t (&at)[3], bool backwards, const std::function<void()>& in_front) {
  std::vector<Block*> order(cluster.begin(), cluster.end());
  for (size_t rank = 0; rank < cluster.size(); ++rank) {
    Block& b = *cluster[rank];
    b.cluster_ = order, b.cluster_rank = static_cast<int>(rank), b.backwards_ = backwards,
    b.holds_ = in_front != nullptr;
  }
  for (Block* b : cluster) b->start(kernel, params, shape, at);
  if (backwards) std::reverse(order.begin(), order.end());
  const auto failed = [&] {
    return std::any_of(order.begin(), order.end(), [](const Block* b) { return !b->error_.empty(); });
  };
  for (bool moved = true; moved && !failed();) {
    moved = false;
    for (Block* b : order) moved |= b->run_ready();
    for (size_t i = 0; !moved && i < order.size(); ++i) moved = order[i]->finish_a_box_copy();
    if (moved || !order[0]->holds_) continue;
    in_front();
    moved = true;
    for (Block* b : order) {
      b->holds_ = false;
      for (int t : std::exchange(b->grid_waiters_, {})) b->ready_.push_back(t);
    }
  }
  for (Block* b : order)
    if (!b->error_.empty()) b->finish();
  for (Block* b : order) b->finish();
}

// Where the unfinished threads wait; empty if all are done.
std::string Block::stuck() const {
  std::map<std::string, int> places;
  for (const Fiber& f : fibers_)
    if (!f.done) ++places[f.waits_for];
  std::string text;
  for (const auto& [place, count] : places)
    text += (text.empty() ? "deadlock: " : ", ") + std::to_string(count) + " threads wait at " + place;
  return text;
}

void Block::fiber_main(transfer_t from) {
  auto* self = static_cast<Block*>(from.data);
  self->scheduler_ = from.fctx;
  self->kernel_(self, self->params_);
  for (const BoxStore& s : self->box_stores_)
    if (s.by == self->thread) self->fail("ends before the boxes that it stores were read");
  self->fibers_[static_cast<size_t>(self->thread)].done = true;
  jump_fcontext(self->scheduler_, self);
}

void Block::resume(int t) {
  thread = t;
  if (current != nullptr) *current = this;  // blocks of a cluster share the kernel's variables
  Fiber& fiber = fibers_[static_cast<size_t>(t)];
  const transfer_t back = jump_fcontext(fiber.context, this);
  fiber.context = back.fctx;
}

void Block::suspend(const char* waits_for) {
  Fiber& fiber = fibers_[static_cast<size_t>(thread)];
  fiber.waits_for = waits_for;
  const transfer_t back = jump_fcontext(scheduler_, this);
  scheduler_ = back.fctx;
}

void Block::fail(std::string&& what) {
  error_ = std::move(what);  // the caller's frame is never left, so it must not own memory
  error_ += ", thread " + std::to_string(thread);
  for (;;) suspend("its end");  // never resumed: the run is over
}
void Block::fail(const char* what) { fail(std::string(what)); }

void Block::together(int warps, const char* name, device::host::Together act, void* arguments) {
  Meeting& m = meeting(warps);
  const int first = thread / (32 * warps) * (32 * warps), lanes = std::min(32 * warps, threads - first);
  if (m.came == 0) m.name = name, m.act = act;
  if (m.act != act || (m.name != name && std::strcmp(m.name, name) != 0))
    fail(std::string("lanes of one warp at different instructions: ") + m.name + " and " + name);
  m.arguments[thread - first] = arguments;
  if (++m.came < lanes) return suspend(name);
  act(m.arguments, lanes);
  m.came = 0;
  for (int t = first; t < first + lanes; ++t)
    if (t != thread) ready_.push_back(t);
}

void Block::barrier(int id, int count, bool waits) {
  if (id < 0 || id > 15 || count % 32 != 0 || count > (threads + 31) / 32 * 32)
    if (!(id == 0 && count == threads))
      fail("barrier " + std::to_string(id) + " of " + std::to_string(count) + " threads");
  Barrier& b = barriers_[id];
  if (b.came == 0) b.count = count;
  if (b.count != count) fail("barrier " + std::to_string(id) + " with two counts");
  if (++b.came < count) {
    if (!waits) return;
    b.waiting.push_back(thread);
    return suspend(id == 0 ? "sync_block" : "a named barrier");
  }
  b.came = 0;
  for (int t : std::exchange(b.waiting, {})) ready_.push_back(t);
}

unsigned char* Block::in_shared(uint32_t address, int bytes, int align, const char* what) {
  const int64_t offset = static_cast<int64_t>(address) - device::host::kSharedBase;
  if (offset < 0 || offset + bytes > shared_bytes_)
    fail(std::string(what) + " outside shared memory, at byte " + std::to_string(offset) + " of " +
         std::to_string(shared_bytes_));
  if (offset % align != 0) fail(std::string(what) + " not aligned to " + std::to_string(align) + " bytes");
  return shared + offset;
}

void Block::copy_async(uint32_t dst, const void* src, int bytes, int size) {
  unsigned char* to = in_shared(dst, size, size, "cp_async");
  if (bytes < 0 || bytes > size) fail("cp_async of " + std::to_string(bytes) + " bytes");
  if (bytes > 0 && reinterpret_cast<uintptr_t>(src) % static_cast<uintptr_t>(size) != 0)
    fail("cp_async from an address that is not aligned");
  std::memset(to, kPoison, static_cast<size_t>(size));
  fibers_[static_cast<size_t>(thread)].copies.push_back({to, src, bytes, size});
}

void Block::commit_copies() {
  Fiber& f = fibers_[static_cast<size_t>(thread)];
  f.groups.push_back(f.copies.size());
}

void Block::wait_copies(int groups_left) {
  Fiber& f = fibers_[static_cast<size_t>(thread)];
  const size_t left = static_cast<size_t>(groups_left);
  if (f.groups.size() <= left) return;
  const size_t finished = f.groups.size() - left, end = f.groups[finished - 1];
  for (size_t i = 0; i < end; ++i) {
    const Copy& c = f.copies[i];
    std::memset(c.dst, 0, static_cast<size_t>(c.size));
    if (c.bytes > 0) std::memcpy(c.dst, c.src, static_cast<size_t>(c.bytes));
  }
  f.copies.erase(f.copies.begin(), f.copies.begin() + static_cast<std::ptrdiff_t>(end));
  f.groups.erase(f.groups.begin(), f.groups.begin() + static_cast<std::ptrdiff_t>(finished));
  for (size_t& g : f.groups) g -= end;
}

void Block::ldmatrix(uint32_t address, device::host::LdmatrixArguments arguments) {
  const int used = arguments.matrices * 8;
  if (thread % 32 < used) arguments.row = in_shared(address, 16, 16, "ldmatrix");
  together(1, arguments.transpose ? "ldmatrix trans" : "ldmatrix", ldmatrix_together, &arguments);
  if (thread % 32 != 0) return;
  // A matrix takes one pass unless two of its rows are in the same 16 of 128 bytes.
  statistics.ldmatrix += arguments.matrices;
  statistics.bank_conflicts += arguments.conflicts;
}

void Block::mma(device::host::MmaArguments arguments) {
  if (thread % 32 == 0) ++statistics.mma;
  together(1, "mma", mma_together, &arguments);
}

Block::PhaseBarrier& Block::phase_barrier(uint32_t barrier) {
  const auto found = phase_barriers_.find(barrier);
  if (found == phase_barriers_.end()) fail("a barrier that was never made, at " + std::to_string(barrier));
  return found->second;
}

void Block::end_phase_if_done(PhaseBarrier& b) {
  if (b.missing > 0 || b.bytes != 0) return;
  ++b.phase;
  b.missing = b.expected;
  for (int t : std::exchange(phase_waiters_, {})) ready_.push_back(t);
}

void Block::mbarrier_init(uint32_t barrier, int arrivals) {
  in_shared(barrier, 8, 8, "mbarrier_init");
  phase_barriers_[barrier] = {arrivals, arrivals, 0, 0};
}

void Block::mbarrier_arrive(uint32_t barrier, int bytes) {
  PhaseBarrier& b = phase_barrier(barrier);
  b.bytes += bytes;
  if (--b.missing < 0) fail("more arrivals at a barrier than it was made for");
  end_phase_if_done(b);
}

void Block::mbarrier_wait(uint32_t barrier, int parity) {
  while (phase_barrier(barrier).phase % 2 == parity) {
    phase_waiters_.push_back(thread);
    suspend("mbarrier_wait");
  }
}

// A box that begins elsewhere ends a real kernel with an illegal instruction.
void Block::check_box(const TensorBox& box, const int (&at)[5], int rank, const std::string& by) {
  if (box.rank != rank) fail(by + " of another rank than its tensor's");
  if (at[0] * box.element_bytes % 16)
    fail(by + " of a box that begins at column " + std::to_string(at[0]) + ", which is no multiple of 16 bytes");
}

void Block::add_box(uint32_t dst, const void* map, uint32_t barrier, const int (&at)[5], int rank) {
  BoxCopy copy{};
  std::memcpy(&copy.box, map, sizeof(copy.box));
  phase_barrier(barrier);
  check_box(copy.box, at, rank, "tma_load");
  const int bytes = box_bytes(copy.box);
  std::memset(in_shared(dst, bytes, 128, "tma_load"), kPoison, static_cast<size_t>(bytes));
  std::copy(at, at + 5, copy.at);
  copy.dst = dst, copy.barrier = barrier;
  box_copies_.push_back(copy);
}

void Block::tma_load(uint32_t dst, const void* map, uint32_t barrier, const int (&at)[5], int rank) {
  add_box(dst, map, barrier, at, rank);
}

// A box is read as late as possible, when its thread waits.
void Block::tma_store(const void* map, uint32_t src, const int (&at)[5], int rank, bool adds) {
  BoxStore store{};
  std::memcpy(&store.box, map, sizeof(store.box));
  check_box(store.box, at, rank, "tma_store");
  in_shared(src, box_bytes(store.box), 128, "tma_store");
  std::copy(at, at + 5, store.at);
  store.src = src, store.by = thread, store.adds = adds;
  box_stores_.push_back(store);
}

void Block::tma_store_wait() {
  for (const BoxStore& s : box_stores_)
    if (s.by == thread) store_box(s.box, s.at, shared - device::host::kSharedBase, s.src, s.adds);
  std::erase_if(box_stores_, [&](const BoxStore& s) { return s.by == thread; });
}

void Block::counter_wait(const uint32_t* counter, uint32_t value) {
  while (*counter != value) {
    counter_waiters_.push_back(thread);
    suspend("counter_wait");
  }
}

void Block::counter_set(uint32_t* counter, uint32_t value) {
  for (const BoxStore& s : box_stores_)
    if (s.by == thread) fail("counter_set before the boxes that it stores were written");
  *counter = value;
  for (Block* b : cluster_)
    for (int t : std::exchange(b->counter_waiters_, {})) b->ready_.push_back(t);
}

// ---- clusters -----------------------------------------------------------------------------------------------------

Block& Block::peer(int rank) {
  if (rank < 0 || rank >= static_cast<int>(cluster_.size()))
    fail("no block " + std::to_string(rank) + " in the cluster");
  Block& b = *cluster_[static_cast<size_t>(rank)];
  if (std::all_of(b.fibers_.begin(), b.fibers_.end(), [](const Fiber& f) { return f.done; }))
    fail("reaches a block of the cluster that has ended");
  return b;
}

void Block::sync_cluster() {
  cluster_waiters_.push_back(thread);
  for (const Block* b : cluster_)
    if (static_cast<int>(b->cluster_waiters_.size()) < b->threads) return suspend("sync_cluster");
  for (Block* b : cluster_)
    for (int t : std::exchange(b->cluster_waiters_, {}))
      if (b != this || t != thread) b->ready_.push_back(t);
}

void Block::griddep_wait() {
  waited_ = true;
  if (!holds_) return;
  grid_waiters_.push_back(thread);
  suspend("griddep_wait");
}

// What a successor reads before its wait must be complete: it existed before this kernel's own wait.
void Block::griddep_launch() {
  if (!waited_ && !starts_next_) fail("lets its successor start before it has waited for its predecessor");
}

void Block::mbarrier_arrive_at(uint32_t barrier, int rank) {
  Block& b = peer(rank);
  const auto found = b.phase_barriers_.find(barrier);
  if (found == b.phase_barriers_.end()) fail("a barrier that was never made in another block");
  if (--found->second.missing < 0) fail("more arrivals at another block's barrier than it was made for");
  b.end_phase_if_done(found->second);
}

void Block::store_at(uint32_t address, float value, int rank) {
  std::memcpy(peer(rank).in_shared(address, 4, 4, "store_at"), &value, 4);
}

void Block::tma_load_shared(uint32_t dst, const void* map, uint32_t barrier, const int (&at)[5], int rank,
                            unsigned blocks) {
  for (int r = 0; blocks >> r != 0; ++r)
    if (blocks >> r & 1) peer(r).add_box(dst, map, barrier, at, rank);
}

// Boxes arrive when no thread can run without them; in backwards mode, the last one first. False if there are none.
bool Block::finish_a_box_copy() {
  if (box_copies_.empty()) return false;
  const BoxCopy copy = backwards_ ? box_copies_.back() : box_copies_.front();
  backwards_ ? box_copies_.pop_back() : box_copies_.pop_front();
  copy_box(copy.box, copy.at, shared - device::host::kSharedBase, copy.dst);
  PhaseBarrier& b = phase_barriers_.at(copy.barrier);
  b.bytes -= box_bytes(copy.box);
  end_phase_if_done(b);
  return true;
}

void Block::wgmma(device::host::WgmmaArguments arguments) {
  if (thread % 128 == 0) {
    statistics.mma += arguments.n / 8 * 4;
    if (const char* wrong = wgmma_fault(arguments)) fail(wrong);
    const int bytes_of_a = arguments.a_columns ? 2048 : 63 / 8 * 1024 + 32;
    if (arguments.held == nullptr) in_shared(wgmma_address(arguments.a), bytes_of_a, 16, "wgmma a");
    in_shared(wgmma_address(arguments.b), wgmma_bytes_of_b(arguments), 16, "wgmma b");
  }
  struct Start {
    device::host::WgmmaArguments arguments;
    WarpgroupProducts* products;
  } start{arguments, &products_[static_cast<size_t>(thread / 128)]};
  const auto act = [](void** lanes, int count) {
    device::host::WgmmaArguments all[128];
    for (int i = 0; i < count; ++i) all[i] = static_cast<Start*>(lanes[i])->arguments;
    static_cast<Start*>(lanes[0])->products->start(all);
  };
  if (thread / 128 * 128 + 128 > threads) fail("wgmma in a warpgroup that is not whole");
  together(4, "wgmma", act, &start);
}

void Block::wgmma_commit() {
  if (thread % 128 == 0) products_[static_cast<size_t>(thread / 128)].commit();
}

void Block::wgmma_wait(int groups_left) {
  struct Wait {
    WarpgroupProducts* products;
    const unsigned char* shared;
    int groups_left;
  } wait{&products_[static_cast<size_t>(thread / 128)], shared - device::host::kSharedBase, groups_left};
  together(
      4, "wgmma_wait",
      [](void** lanes, int) {
        const auto* first = static_cast<const Wait*>(lanes[0]);
        first->products->finish(first->groups_left, first->shared);
      },
      &wait);
  if (const char* wrong = wait.products->fault()) fail(wrong);
}

uint16_t Block::f16_bits(float x) { return tenon::f16_bits(x); }
uint8_t Block::e4m3_bits(float x) { return tenon::e4m3_bits(x); }

}  // namespace tenon::cuda::test
