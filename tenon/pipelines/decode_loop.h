// Texts written by a device on its own: the host puts runs of one step on its stream, many ahead where the device
// records, and reads the tokens as they come. Rows join and leave between the runs; the others go on.
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

/// How a row goes on.
struct DecodeRow {
  int32_t token = 0;     ///< the last of the text, which the cache does not hold yet
  int64_t position = 0;  ///< tokens that it holds
  int64_t most = 0;      ///< to write; the row ends there, or with a stop token. 0: it writes none
  Sampling sampling = {};
  uint64_t seed = 0;
  int64_t draw = 0;                     ///< the number of the next draw: with the seed it decides the token
  std::span<const int32_t> seen = {};   ///< what the repetition penalty is for; the loop adds its own
  std::span<const int32_t> stops = {};  ///< tokens that end it, at most as many as the loop's shape has
};

/// A token, and whether its row goes on behind it. Its log-probability is NaN where scores were not finite: the row
/// ends there.
using OnDecoded = std::function<bool(size_t row, const SampledToken& token)>;

/// Error(Numeric) for a token that was drawn of scores behind `tokens` tokens which were not finite.
void check_drawn(const SampledToken& token, int64_t tokens);

/// One loop over a batch of rows, whose caches are among `states`. Rows stand still until they join. Equal rows get
/// equal tokens, whatever the others are. One thread at a time.
class DecodeLoop {
 public:
  /// The plan of plan_decode_step for a shape.
  using PlanStep = std::function<Plan(const DecodeStepShape& shape)>;
  /// `plan` is asked for `shape`, and for the same with penalties when a row has one. Errors as Executable's.
  DecodeLoop(const DecodeStepShape& shape, int64_t vocabulary, PlanStep plan, std::shared_ptr<WeightStore> store,
             std::shared_ptr<Stream> stream, std::shared_ptr<Buffers> states);
  ~DecodeLoop();

  /// A row goes on from here with the next run; what it wrote before and was not read yet is nobody's. Its cache holds
  /// row.position tokens by then, by what is on the loop's stream already. The spans need not outlive the call.
  void join(size_t row, const DecodeRow& as);
  /// A row's text has no more tokens. The device may write some behind it, until the row parks or joins.
  void leave(size_t row) { rows_[row].going = false; }
  /// The same, and from the next run on the row leaves its cache alone but for the place of the token at `position`.
  void park(size_t row, int64_t position);
  /// In pages: those of a row from here on, its first tokens' first. A row that goes on must have pages for reach(row)
  /// + 1 tokens whenever runs are put on the stream. One without pages must stand still at position 0: its runs write
  /// into page 0, which is no text's. In turn with the runs, as inputs are.
  void give_pages(size_t row, std::span<const int32_t> pages);
  /// Tokens that the row's cache may hold by the end of the runs that the next step() puts on the stream.
  int64_t reach(size_t row) const;
  /// Puts runs on the stream and gives the tokens of those that are done: of each row in order, those of a row that
  /// has joined since among them. Asks check_stop(). If it throws, or `each` does, every row ends.
  void step(const OnDecoded& each);
  /// The same, but no run is begun: gives what is under way. Rows that go on then are as `each` has seen them.
  void settle(const OnDecoded& each);
  /// Every row ends. Waits for what was written behind the rows' ends.
  void end_all();
  /// Some row goes on.
  bool going() const;
  bool going(size_t row) const { return rows_[row].going; }

  /// Joins all of `rows`, and writes until every one has ended. Error(Numeric): scores that are not finite.
  void run(std::span<const DecodeRow> rows, const OnDecoded& each);

 private:
  struct Row {
    bool going = false, penalised = false;
    uint64_t text = 0;   // counts those that joined
    int64_t next = 0;    // the position of the next run that is put on the stream
    int64_t read = 0;    // that of the next token that is read
    int64_t limit = 0;   // as the input
    bool fresh = false;  // no run of it has begun
    std::vector<int32_t> stops;
  };
  // Runs that are on the stream, and which tokens of which texts they write.
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
    int64_t first;  // place of the first of them
  };
  struct Step {
    Executable executable;
    bool current = false, ran = false;  // its inputs are; its slower phases have
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
  std::shared_ptr<Stream> stream_, reader_;  ///< the second copies tokens while others are being written
  std::shared_ptr<Buffers> states_;
  std::optional<Step> steps_[2];  ///< without penalties, and with
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
