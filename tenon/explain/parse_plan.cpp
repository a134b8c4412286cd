#include "tenon/explain/parse_plan.h"

#include <algorithm>
#include <optional>

#include "tenon/core/error.h"
#include "tenon/core/line.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

void keyword(Line& in, std::string_view word) { in.one_of(std::span(&word, 1)); }

// The number after a keyword.
int64_t amount(Line& in) {
  in.expect('=');
  return in.whole(in.number_text(), 0);
}

class PlanParser {
 public:
  explicit PlanParser(std::string_view text) : text_(text) {}

  Plan parse() {
    plan_.graph = std::make_shared<Graph>();
    bool header = false;
    while (std::optional<Line> in = next()) {
      const std::string_view kind = in->word("plan, buffer, phase or launch");
      if (header == (kind == "plan")) in->fail("expected 'plan' first, and only once");
      header = true;
      if (kind == "plan") {
        plan_.name = in->quoted();
        keyword(*in, "arena");
        plan_.arena_bytes = amount(*in);
        keyword(*in, "precision");
        plan_.precision = PrecisionPolicy::parse(in->quoted());
      } else if (kind == "buffer") {
        parse_buffer(*in);
      } else if (kind == "phase") {
        plan_.phases.push_back({kRates[in->one_of(kRateNames)], {}});
      } else if (kind == "launch") {
        if (plan_.phases.empty()) in->fail("expected a phase before the first launch");
        parse_launch(*in);
      } else {
        in->fail("expected plan, buffer, phase or launch");
      }
    }
    TENON_CHECK(Usage, header, "plan") << "no text";
    const std::string hazard = state_hazard(plan_);
    TENON_CHECK(Usage, hazard.empty(), "plan") << hazard;
    check_memory();
    return std::move(plan_);
  }

 private:
  std::optional<Line> next() { return next_line(text_, number_, "plan"); }

  void parse_buffer(Line& in) {
    constexpr std::string_view kPlaces[] = {"offset", "outside", "stored"};
    Buffer b;
    b.name = in.quoted();
    b.dtype = parse_dtype(in.word("an element type"));
    b.shape = in.dims();
    b.role = static_cast<BufferRole>(in.one_of(kRoleNames));
    b.rate = kRates[in.one_of(kRateNames)];
    if (b.role != BufferRole::State || !in.at_end()) {
      const size_t place = in.one_of(kPlaces);
      b.outside = place == 1;
      b.stored = place == 2;
      if (place == 0) b.offset = amount(in);
    }
    if (b.shape.numel() > Line::kMaxWhole) in.fail("a buffer of more than 2^53 elements");
    b.bytes = bytes_of(b.shape, b.dtype);
    if ((bytes_ += b.bytes) > int64_t{1} << 60) in.fail("buffers of more than 2^60 bytes in all");
    plan_.buffers.push_back(std::move(b));
  }

  KeptApart parse_apart(Line& in) {
    const auto kind = static_cast<Apart>(in.one_of(kApartNames));
    KeptApart k{in.quoted(), in.quoted(), kind};
    while (!in.at_end()) k.into.push_back({in.quoted(), in.quoted()});
    return k;
  }

  void parse_launch(Line& head) {
    Launch l;
    l.skeleton = head.word("a skeleton");
    l.name = head.quoted();
    std::string body;
    for (;;) {
      std::optional<Line> in = next();
      if (!in) head.fail("expected 'end' of this launch");
      const std::string_view kind = in->peek() == '%' ? "" : in->word("a part of a launch");
      if (kind == "end") break;
      if (kind == "into") {
        for (const Expr& v : tenon::parse(*plan_.graph, body)) l.outputs.push_back({in->quoted(), v});
        in->expect_end();
      } else if (kind == "stored") {
        const auto it = std::ranges::find(l.outputs, in->quoted(), &Output::buffer);
        if (it == l.outputs.end()) in->fail("expected a buffer of the 'into' line");
        it->why = in->quoted();
      } else if (kind == "settled") {
        while (!in->at_end()) l.settled.push_back(in->quoted());
      } else if (kind == "apart") {
        l.apart.push_back(parse_apart(*in));
      } else {
        body.append(in->text()).append("\n");
      }
    }
    if (l.outputs.empty()) head.fail("expected a launch with an 'into' line");
    form(l, head);
    plan_.phases.back().launches.push_back(std::move(l));
  }

  // Memory is where the planner would have it, so that launches stay within it and write over nothing that is needed.
  // Either everything that the planner would store is stored, or nothing is.
  void check_memory() {
    const Plan said = plan_;
    for (Buffer& b : plan_.buffers) b.stored = false;
    if (std::ranges::any_of(said.buffers, &Buffer::stored)) find_stored(plan_);
    lay_out_memory(plan_);
    for (size_t i = 0; i < said.buffers.size(); ++i)
      TENON_CHECK(Usage, place_text(said.buffers[i]) == place_text(plan_.buffers[i]), "plan")
          << "expected buffer " << quoted(plan_.buffers[i].name) << place_text(plan_.buffers[i])
          << ", as the planner has it, found" << place_text(said.buffers[i]);
    TENON_CHECK(Usage, said.arena_bytes == plan_.arena_bytes, "plan")
        << "expected arena=" << plan_.arena_bytes << ", as the planner has it, found " << said.arena_bytes;
  }

  static void form(Launch& l, const Line& head) {
    std::optional<std::string> reason;
    try {
      reason = form_launch(l);
      const Expr anchor = anchor_of(l);
      if (!reason && anchor && !arithmetic_of(anchor)) reason = std::string(anchor->name()) + " has no arithmetic type";
    } catch (const Error& e) {  // an unknown skeleton, or two anchors
      reason = e.what();
    }
    if (reason) head.fail("expected a launch that its skeleton runs (", *reason, ")");
  }

  std::string_view text_;  // the text not read yet
  size_t number_ = 0;      // of the line
  int64_t bytes_ = 0;      // of the buffers
  Plan plan_;
};

}  // namespace

Plan parse_plan(std::string_view text) { return PlanParser(text).parse(); }

}  // namespace tenon
