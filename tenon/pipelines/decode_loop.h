// Text generation that runs on the device by itself: the host enqueues runs of one step, many ahead if the device
// records launches, and reads tokens as they come. Rows join and leave between runs without stopping the others.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tenon/models/decode_step.h"
#include "tenon/pipelines/sampling.h"
#include "tenon/runtime/executable.h"

namespace tenon {

/// A page that belongs to no text: where a row's text has no pages yet, its table refers to this one.
inline constexpr int32_t kNobodysPage = 0;

/// The state from which a row continues.
struct DecodeRow {
  int32_t token = 0;     ///< last token of the text, not in the cache yet
  int64_t position = 0;  ///< number of tokens in the cache
  int64_t most = 0;      ///< most tokens to write; the row ends there or with a stop token. 0: it writes none
  Sampling sampling = {};
  uint64_t seed = 0;
  int64_t draw = 0;                     ///< index of the next draw; together with the seed it determines the token
  std::span<const int32_t> seen = {};   ///< tokens that the repetition penalty is for; the loop adds its own
  std::span<const int32_t> stops = {};  ///< tokens that end the row, at most as many as the loop's shape has
};

/// Receives a token; returns whether its row continues after it. A log-probability of NaN means that scores were not
/// finite: the row ends there.
using OnDecoded = std::function<bool(size_t row, const SampledToken& token)>;

/// Error(Numeric) for a token that was sampled from scores that were not finite, after `tokens` tokens.
void check_drawn(const SampledToken& token, int64_t tokens);

/// A loop over a batch of rows, whose caches are among `states`. Rows are idle until they join. Equal rows get equal
/// tokens, whatever the other rows. For one thread at a time.
class DecodeLoop {
 public:
  /// Makes the plan of plan_decode_step for a shape.
  using PlanStep = std::function<Plan(const DecodeStepShape& shape)>;
  /// `plan` is called for `shape`, and for the same shape with penalties once a row has one. Errors as Executable's.
  DecodeLoop(const DecodeStepShape& shape, int64_t vocabulary, PlanStep plan, std::shared_ptr<WeightStore> store,
             std::shared_ptr<Stream> stream, std::shared_ptr<Buffers> states);
  ~DecodeLoop();

  /// Restarts a row from this state at the next run, discarding tokens that it wrote before and that were not read yet.
  /// By then, work on the loop's stream has put row.position tokens into its cache. The spans need not outlive the
  /// call.
  void join(size_t row, const DecodeRow& as);
  /// Ends a row's text. The device may still write tokens after it, until the row parks or joins.
  void leave(size_t row) { rows_[row].going = false; }
  /// Like leave(); from the next run on the row writes only to the place of the token at `position` in its cache.
  void park(size_t row, int64_t position);
  /// With pages: sets the row's pages, in the order of its tokens. A row that continues must have pages for reach(row)
  /// + 1 tokens whenever runs are enqueued. A row without pages must be parked at position 0: its runs write into page
  /// 0, which belongs to no text. Ordered with the runs like inputs.
  void give_pages(size_t row, std::span<const int32_t> pages);
  /// Most tokens that the row's cache may hold after the runs that the next step() enqueues.
  int64_t reach(size_t row) const;
  /// Enqueues runs and delivers the tokens of runs that are done: each row's in order, those of a row that has joined
  /// since among them. Asks check_stop(). If that or `each` throws, every row ends.
  void step(const OnDecoded& each);
  /// Like step(), but enqueues nothing: delivers what is under way. `each` has then seen all tokens of the rows.
  void settle(const OnDecoded& each);
  /// Ends every row. Waits for runs that still write after the rows' ends.
  void end_all();
  /// Whether any row continues.
  bool going() const;
  bool going(size_t row) const { return rows_[row].going; }

  /// Joins all of `rows`, and writes until every row has ended. Error(Numeric): scores that are not finite.
  void run(std::span<const DecodeRow> rows, const OnDecoded& each);

 private:
  struct Row {
    bool going = false, penalised = false;
    uint64_t text = 0;   // counts the texts that have joined
    int64_t next = 0;    // position of the next run to be enqueued
    int64_t read = 0;    // position of the next token to be read
    int64_t limit = 0;   // as the input of that name
    bool fresh = false;  // no run of this text has been enqueued
    std::vector<int32_t> stops;
  };
  // A lot: runs on the stream, and which tokens of which texts they write.
  struct Part {
    size_t row;
    uint64_t text;
    int64_t first, count;
  };
  struct Lot {
    std::vector<Part> parts;
    std::shared_ptr<const Event> done;
  };
  struct Written {
    std::vector<int32_t> text;
    std::vector<float> log_probabilities;
    int64_t first;  // index of the first of them
  };
  struct Step {
    Executable executable;
    bool current = false, ran = false;  // its inputs are up to date; its slower phases have run
  };
  bool begin_lot();
  void read_lot(const OnDecoded& each);
  void give(const Part& part, int64_t index, const Written& made, const OnDecoded& each);
  void put(size_t row, const DecodeRow& as);
  Step& stepper(bool penalises);
  Executable& joiner(bool penalises);
  void set_inputs(Executable& e, bool penalises);
  Written written(const Lot& lot) const;
  int64_t place_of(size_t row, int64_t position) const;
  void* memory(const char* state) const;

  DecodeStepShape shape_;
  int64_t vocabulary_;
  PlanStep plan_;
  std::shared_ptr<WeightStore> store_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Stream> stream_, reader_;  ///< reader_ copies tokens while others are being written
  std::shared_ptr<Buffers> states_;
  std::optional<Step> steps_[2];  ///< without and with penalties
  std::optional<Executable> joins_[2];
  std::vector<Row> rows_;
  std::vector<int32_t> limit_, draws_, seed_, stops_, pages_;
  std::vector<float> rule_, penalty_;
  std::deque<Lot> lots_;
};

/// The plan of decode_step.
Plan plan_decode_step(const DecoderConfig& c, const DecodeStepShape& shape, nn::Precision p,
                      const PlanOptions& options);

}  // namespace tenon
