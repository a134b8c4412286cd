#include "tenon/pipelines/decode_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"

namespace tenon {
namespace {

// A lot is up to kLot runs, enqueued and read together. At most kLots lots are under way.
constexpr int64_t kLot = 8, kLots = 2;

// Writes the states of one row only, in order with the runs: what these did to other rows stays.
Plan plan_join(const DecodeStepShape& shape, int64_t vocabulary, const Target& target) {
  Graph g;
  std::vector<Result> results;
  const Expr row = input(g, "row", DType::I32, {1});
  const auto replace = [&](const std::string& name, DType type, const Shape& all, const Expr& at, int64_t n) {
    results.push_back({name, update_rows(state(g, name, type, all), at, input(g, "new_" + name, type, {n}))});
  };
  for (const char* name : {"token", "position", "going"}) replace(name, DType::I32, {shape.rows}, row, 1);
  if (shape.penalises) {
    const auto number = [](const Expr& x) { return cast(x, DType::F32); };
    const Expr first = broadcast(number(row) * static_cast<double>(vocabulary), {vocabulary});
    const Expr at = cast(first + number(iota(g, vocabulary)), DType::I32);
    replace("seen", DType::U8, {shape.rows * vocabulary}, at, vocabulary);
  }
  PlanOptions options;
  options.name = "join";
  options.target = target;
  return make_plan(results, options);
}

template <class T>
void set(Executable& e, const std::string& name, DType type, const Shape& shape, const std::vector<T>& values) {
  e.set(name, HostView{type, shape, values.data()});
}

}  // namespace

void check_drawn(const SampledToken& token, int64_t tokens) {
  TENON_CHECK(Numeric, !std::isnan(token.log_probability), "logits")
      << "the logits after " << tokens << " tokens contain a NaN or an infinity, or make no token possible";
}

DecodeLoop::DecodeLoop(const DecodeStepShape& shape, int64_t vocabulary, PlanStep plan,
                       std::shared_ptr<WeightStore> store, std::shared_ptr<Stream> stream,
                       std::shared_ptr<Buffers> states)
    : shape_(shape),
      vocabulary_(vocabulary),
      plan_(std::move(plan)),
      store_(std::move(store)),
      backend_(store_->backend()),
      stream_(std::move(stream)),
      reader_(backend_->make_stream()),
      states_(std::move(states)) {
  const auto n = static_cast<size_t>(shape_.rows);
  rows_.resize(n);
  for (std::vector<int32_t>* each : {&limit_, &draws_}) each->resize(n);
  seed_.resize(4 * n);
  rule_.resize(4 * n);
  stops_.assign(n * static_cast<size_t>(shape_.stops), -1);
  penalty_.assign(n, 1);
  if (shape_.page) {
    pages_.resize(n * static_cast<size_t>(shape_.capacity / shape_.page));
    for (size_t r = 0; r < n; ++r) give_pages(r, {});
  }
  stepper(shape_.penalises);
}

DecodeLoop::~DecodeLoop() {
  try {
    stream_->synchronize();
  } catch (...) {  // a failed device has already reported its error
  }
}

void DecodeLoop::join(size_t row, const DecodeRow& as) {
  TENON_CHECK(Internal, row < rows_.size() && std::ssize(as.stops) <= shape_.stops, "decode loop")
      << "row " << row << " of " << rows_.size() << " with " << as.stops.size() << " stop tokens";
  TENON_CHECK(Internal, as.position >= 0 && as.position + as.most < shape_.capacity, "decode loop")
      << as.most << " tokens from position " << as.position << " do not fit a cache of " << shape_.capacity;
  const Sampling& s = as.sampling;
  Row& to = rows_[row];
  to.penalised = s.repetition_penalty != 1;
  to.going = to.fresh = as.most > 0;
  ++to.text;
  to.next = to.read = as.position;
  to.limit = as.position + as.most;
  to.stops.assign(as.stops.begin(), as.stops.end());
  limit_[row] = static_cast<int32_t>(to.limit);
  draws_[row] = static_cast<int32_t>(as.draw - as.position - 1);
  for (size_t i = 0; i < 4; ++i) seed_[4 * row + i] = static_cast<int32_t>(as.seed >> 16 * i & 0xffff);
  const double numbers[] = {s.draw ? s.temperature : 0, static_cast<double>(s.top_k), s.top_p, s.min_p};
  std::ranges::copy(numbers, rule_.begin() + static_cast<std::ptrdiff_t>(4 * row));
  const auto stops = stops_.begin() + static_cast<std::ptrdiff_t>(row) * shape_.stops;
  std::fill_n(std::ranges::copy(as.stops, stops).out, shape_.stops - std::ssize(as.stops), -1);
  penalty_[row] = static_cast<float>(s.repetition_penalty);
  for (std::optional<Step>& each : steps_)
    if (each) each->current = false;
  put(row, as);
}

void DecodeLoop::park(size_t row, int64_t position) {
  leave(row);
  put(row, {.position = position});
}

void DecodeLoop::give_pages(size_t row, std::span<const int32_t> pages) {
  const size_t n = pages_.size() / rows_.size();
  TENON_CHECK(Internal, pages.size() <= n, "decode loop") << "expected at most " << n << " pages, got " << pages.size();
  const auto to = pages_.begin() + static_cast<std::ptrdiff_t>(row * n);
  std::fill_n(to, n, kNobodysPage);
  std::ranges::copy(pages, to);
  for (std::optional<Step>& each : steps_)
    if (each) each->current = false;
}

int64_t DecodeLoop::reach(size_t row) const { return std::min(rows_[row].limit, rows_[row].next + kLots * kLot); }

void DecodeLoop::put(size_t row, const DecodeRow& as) {
  const bool penalises = shape_.penalises || as.sampling.repetition_penalty != 1;
  Executable& e = joiner(penalises);
  const auto one = [&](const char* name, int64_t value) {
    set(e, name, DType::I32, {1}, std::vector{static_cast<int32_t>(value)});
  };
  one("row", static_cast<int64_t>(row));
  one("new_token", as.token);
  one("new_position", as.position);
  one("new_going", as.most > 0);
  if (penalises) {
    std::vector<uint8_t> seen(static_cast<size_t>(vocabulary_));
    for (const int32_t id : as.seen) seen[static_cast<size_t>(id)] = 1;
    set(e, "new_seen", DType::U8, {vocabulary_}, seen);
  }
  for (const Phase& p : e.plan().phases) e.enqueue(p.rate);
}

Executable& DecodeLoop::joiner(bool penalises) {
  std::optional<Executable>& e = joins_[penalises];
  if (!e) {
    DecodeStepShape shape = shape_;
    shape.penalises = penalises;
    e.emplace(plan_join(shape, vocabulary_, backend_->target()), store_, std::map<std::string, void*>{}, stream_,
              states_);
  }
  return *e;
}

DecodeLoop::Step& DecodeLoop::stepper(bool penalises) {
  std::optional<Step>& step = steps_[penalises];
  if (step) return *step;
  DecodeStepShape shape = shape_;
  shape.penalises = penalises;
  step.emplace(Step{Executable(plan_(shape), store_, {}, stream_, states_)});
  return *step;
}

void DecodeLoop::set_inputs(Executable& e, bool penalises) {
  const Shape all{shape_.rows}, fours{shape_.rows, 4};
  set(e, "limit", DType::I32, all, limit_);
  set(e, "draws", DType::I32, all, draws_);
  set(e, "seed", DType::I32, fours, seed_);
  set(e, "rule", DType::F32, fours, rule_);
  if (shape_.stops) set(e, "stops", DType::I32, {shape_.rows, shape_.stops}, stops_);
  if (penalises) set(e, "penalty", DType::F32, all, penalty_);
  if (shape_.page) set(e, "pages", DType::I32, {shape_.rows, shape_.capacity / shape_.page}, pages_);
}

bool DecodeLoop::going() const {
  return std::ranges::any_of(rows_, [](const Row& r) { return r.going; });
}

// Enqueues a lot; false if every row that continues already has runs for all its tokens.
bool DecodeLoop::begin_lot() {
  int64_t most = 0;
  bool fresh = !backend_->records(), penalises = shape_.penalises;
  for (const Row& r : rows_) {
    if (!r.going) continue;
    most = std::max(most, r.limit - r.next);
    fresh = fresh || r.fresh;
    penalises = penalises || r.penalised;
  }
  if (most == 0) return false;
  Step& step = stepper(penalises);
  if (!step.current) set_inputs(step.executable, penalises);
  step.current = true;
  if (!step.ran)
    for (const Phase& p : step.executable.plan().phases)
      if (p.rate != Rate::Step) step.executable.run(p.rate);
  step.ran = true;
  // A row's first token is wanted at once; a backend that runs synchronously is better asked for single runs.
  const int64_t n = fresh ? 1 : std::min(kLot, most);
  step.executable.enqueue(Rate::Step, static_cast<int>(n));
  Lot lot;
  for (size_t r = 0; r < rows_.size(); ++r) {
    Row& row = rows_[r];
    const int64_t count = row.going ? std::min(n, row.limit - row.next) : 0;
    if (count == 0) continue;
    lot.parts.push_back({r, row.text, row.next, count});
    row.next += count;
    row.fresh = false;
  }
  lot.done = stream_->mark();
  lots_.push_back(std::move(lot));
  return true;
}

void DecodeLoop::read_lot(const OnDecoded& each) {
  const Lot lot = std::move(lots_.front());
  lots_.pop_front();
  if (std::ranges::none_of(lot.parts, [&](const Part& p) { return rows_[p.row].text == p.text && rows_[p.row].going; }))
    return;
  reader_->wait(*lot.done);
  const Written made = written(lot);
  for (int64_t i = 0; i < kLot; ++i)
    for (const Part& part : lot.parts)
      if (i < part.count) give(part, i, made, each);
}

void DecodeLoop::give(const Part& part, int64_t index, const Written& made, const OnDecoded& each) {
  Row& row = rows_[part.row];
  if (!row.going || row.text != part.text) return;
  const auto at = static_cast<size_t>(place_of(part.row, part.first + index) - made.first);
  const SampledToken token{made.text[at], made.log_probabilities[at]};
  row.read = part.first + index + 1;
  row.going = row.read < row.limit && std::ranges::find(row.stops, token.id) == row.stops.end() &&
              !std::isnan(token.log_probability);
  const uint64_t text = row.text;
  const bool goes_on = each(part.row, token);
  if (row.text == text) row.going = row.going && goes_on;
}

void DecodeLoop::step(const OnDecoded& each) {
  const size_t under_way = backend_->records() ? kLots : 1;
  try {
    check_stop("decode loop");
    while (lots_.size() < under_way && begin_lot()) {
    }
    if (!lots_.empty()) read_lot(each);
  } catch (...) {
    end_all();
    throw;
  }
}

void DecodeLoop::settle(const OnDecoded& each) {
  try {
    while (!lots_.empty()) read_lot(each);
  } catch (...) {
    end_all();
    throw;
  }
}

void DecodeLoop::end_all() {
  lots_.clear();
  for (Row& r : rows_) r.going = false;
  stream_->synchronize();
}

void DecodeLoop::run(std::span<const DecodeRow> rows, const OnDecoded& each) {
  TENON_CHECK(Internal, std::ssize(rows) <= shape_.rows, "decode loop")
      << "expected at most " << shape_.rows << " rows, got " << rows.size();
  for (size_t r = 0; r < rows_.size(); ++r)
    if (r < rows.size())
      join(r, rows[r]);
    else
      park(r, 0);
  while (going())
    step([&](size_t r, const SampledToken& t) {
      check_drawn(t, rows_[r].read);
      return each(r, t);
    });
  end_all();  // waits for runs that still write after the rows' ends
}

// Index of a token in the caches and in `text`. If a row still has the text of a lot, it still has its pages too.
int64_t DecodeLoop::place_of(size_t row, int64_t position) const {
  const auto r = static_cast<int64_t>(row);
  if (!shape_.page) return r * shape_.capacity + position;
  const int64_t of_row = shape_.capacity / shape_.page;
  return pages_[static_cast<size_t>(r * of_row + position / shape_.page)] * shape_.page + position % shape_.page;
}

// Copies what a lot's runs have written, along with everything between the rows.
DecodeLoop::Written DecodeLoop::written(const Lot& lot) const {
  Written out;
  out.first = std::numeric_limits<int64_t>::max();
  int64_t behind = 0;
  for (const Part& p : lot.parts) {
    if (rows_[p.row].text != p.text || !rows_[p.row].going) continue;
    for (int64_t i = p.first; i < p.first + p.count; ++i) {
      out.first = std::min(out.first, place_of(p.row, i));
      behind = std::max(behind, place_of(p.row, i) + 1);
    }
  }
  const int64_t n = behind - out.first;
  out.text.resize(static_cast<size_t>(n));
  out.log_probabilities.resize(static_cast<size_t>(n));
  const auto copy = [&](const char* state, void* to) {
    backend_->copy_out(*reader_, to, static_cast<std::byte*>(memory(state)) + 4 * out.first, 4 * n);
  };
  copy("text", out.text.data());
  copy("log_probability", out.log_probabilities.data());
  return out;
}

void* DecodeLoop::memory(const char* state) const {
  for (const std::optional<Step>& step : steps_) {
    if (!step) continue;
    for (const Buffer& b : step->executable.plan().buffers)
      if (b.name == state) return states_->get(b).get();
  }
  throw Error(ErrorKind::Internal, "decode loop", std::string("no state '") + state + "'");
}

Plan plan_decode_step(const DecoderConfig& c, const DecodeStepShape& shape, nn::Precision p,
                      const PlanOptions& options) {
  Graph g;
  std::vector<Result> results;
  for (const auto& [name, value] : decode_step(g, c, shape, p)) results.push_back({name, value});
  return make_plan(results, options);
}

}  // namespace tenon
