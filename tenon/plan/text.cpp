// Plans as text. Line by line:
//   plan "name" arena=BYTES precision "policy"
//   buffer "name" dtype shape role rate offset=BYTES, or outside, or stored; nothing for a state of the runtime's
//   phase rate
//   launch skeleton "name"
//     %0 = ...            the body, as expressions print
//     return %a, %b
//     into "buffer" ..    one name a result
//     stored "buffer" "why"  for each result whose storing had to be decided
//     settled "buffer" .. those it reads that neither it nor the launch in front of it writes
//     apart kind "what" "why", and "launch" "hole" for each place where it went
//   end
#include <algorithm>
#include <charconv>
#include <sstream>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/kernels/skeleton.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

constexpr std::string_view kRoles[] = {"temporary", "input", "output", "state"};

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

void print_launch(std::ostringstream& out, const Launch& l) {
  out << "launch " << l.skeleton << " " << quoted(l.name) << "\n";
  std::vector<Expr> values;
  for (const Output& o : l.outputs) values.push_back(o.value);
  std::istringstream body(print(values));
  for (std::string line; std::getline(body, line);) out << "  " << line << "\n";
  out << "  into";
  for (const Output& o : l.outputs) out << " " << quoted(o.buffer);
  out << "\n";
  for (const Output& o : l.outputs)
    if (!o.why.empty()) out << "  stored " << quoted(o.buffer) << " " << quoted(o.why) << "\n";
  for (size_t i = 0; i < l.settled.size(); ++i) out << (i ? " " : "  settled ") << quoted(l.settled[i]);
  if (!l.settled.empty()) out << "\n";
  for (const KeptApart& k : l.apart) {
    out << "  apart " << kApartNames[static_cast<size_t>(k.kind)] << " " << quoted(k.what) << " " << quoted(k.why);
    for (const Place& place : k.into) out << " " << quoted(place.launch) << " " << quoted(place.hole);
    out << "\n";
  }
  out << "end\n";
}

// Words and quoted strings of one line.
class LineReader {
 public:
  LineReader(std::string_view line, int number) : line_(line), number_(number) {}
  bool done() {
    while (at_ < line_.size() && line_[at_] == ' ') ++at_;
    return at_ >= line_.size();
  }
  std::string_view word() {
    if (done()) fail("a word");
    const size_t begin = at_;
    while (at_ < line_.size() && line_[at_] != ' ') ++at_;
    return line_.substr(begin, at_ - begin);
  }
  std::string text() {
    if (done() || line_[at_] != '"') fail("a quoted string");
    std::string out;
    for (++at_; at_ < line_.size() && line_[at_] != '"'; ++at_) {
      if (line_[at_] == '\\' && at_ + 1 < line_.size()) {
        ++at_;
        out += line_[at_] == 'n' ? '\n' : line_[at_];
      } else {
        out += line_[at_];
      }
    }
    if (at_ >= line_.size()) fail("a closing quote");
    ++at_;
    return out;
  }
  int64_t number(std::string_view w) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), value);
    if (error != std::errc() || end != w.data() + w.size() || value < 0)
      fail("a whole number instead of '" + std::string(w) + "'");
    return value;
  }
  int64_t field(std::string_view key) { return field(word(), key); }
  int64_t field(std::string_view w, std::string_view key) {
    if (!w.starts_with(key)) fail(std::string(key) + "..");
    return number(w.substr(key.size()));
  }
  Shape shape() {
    std::string_view w = word();
    if (w.size() < 2 || w.front() != '[' || w.back() != ']') fail("a shape such as [2,3]");
    w = w.substr(1, w.size() - 2);
    std::vector<int64_t> dims;
    while (!w.empty()) {
      const size_t comma = std::min(w.find(','), w.size());
      dims.push_back(number(w.substr(0, comma)));
      w = w.substr(std::min(comma + 1, w.size()));
    }
    return Shape(dims);
  }
  Rate rate() {
    const std::string_view w = word();
    for (Rate r : kRates)
      if (name_of(r) == w) return r;
    fail("constant, schedule, prompt or step");
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error(ErrorKind::Usage, "plan line " + std::to_string(number_),
                "expected " + expected + " in: " + std::string(line_));
  }

 private:
  std::string_view line_;
  int number_;
  size_t at_ = 0;
};

class PlanParser {
 public:
  explicit PlanParser(std::string_view text) : text_(text) {}

  Plan parse() {
    plan_.graph = std::make_shared<Graph>();
    std::string_view line;
    bool header = false;
    while (next(line)) {
      LineReader in(line, number_);
      const std::string_view kind = in.word();
      if (!header && kind != "plan") in.fail("'plan' first");
      header = true;
      if (kind == "plan") {
        plan_.name = in.text();
        plan_.arena_bytes = in.field("arena=");
        if (in.word() != "precision") in.fail("'precision'");
        plan_.precision = PrecisionPolicy::parse(in.text());
      } else if (kind == "buffer") {
        parse_buffer(in);
      } else if (kind == "phase") {
        plan_.phases.push_back({in.rate(), {}});
      } else if (kind == "launch") {
        if (plan_.phases.empty()) in.fail("a phase before the first launch");
        parse_launch(in);
      } else {
        in.fail("plan, buffer, phase or launch");
      }
    }
    TENON_CHECK(Usage, header, "plan") << "no text";
    check_stored();
    const std::string hazard = state_hazard(plan_);
    TENON_CHECK(Usage, hazard.empty(), "plan") << hazard;
    return std::move(plan_);
  }

 private:
  bool next(std::string_view& line) {
    while (at_ < text_.size()) {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      line = text_.substr(at_, end - at_);
      at_ = end + 1;
      ++number_;
      if (line.find_first_not_of(' ') != std::string_view::npos) return true;
    }
    return false;
  }

  void parse_buffer(LineReader& in) {
    Buffer b;
    b.name = in.text();
    b.dtype = parse_dtype(in.word());
    b.shape = in.shape();
    const std::string_view role = in.word();
    const auto it = std::find(std::begin(kRoles), std::end(kRoles), role);
    if (it == std::end(kRoles)) in.fail("temporary, input, output or state");
    b.role = static_cast<BufferRole>(it - std::begin(kRoles));
    b.rate = in.rate();
    if (b.role != BufferRole::State || !in.done()) {
      const std::string_view place = in.word();
      b.outside = place == "outside";
      b.stored = place == "stored";
      if (b.in_arena()) b.offset = in.field(place, "offset=");
    }
    b.bytes = bytes_of(b.shape, b.dtype);
    plan_.buffers.push_back(std::move(b));
  }

  KeptApart parse_apart(LineReader& in) {
    KeptApart k;
    const auto it = std::find(std::begin(kApartNames), std::end(kApartNames), in.word());
    if (it == std::end(kApartNames)) in.fail("refused, fused or anchor");
    k.kind = static_cast<Apart>(it - std::begin(kApartNames));
    k.what = in.text();
    k.why = in.text();
    while (!in.done()) k.into.push_back({in.text(), in.text()});
    return k;
  }

  void parse_launch(LineReader& head) {
    Launch l;
    l.skeleton = head.word();
    l.name = head.text();
    std::string body;
    std::vector<Expr> values;
    std::string_view line;
    for (;;) {
      if (!next(line)) head.fail("'end' of this launch");
      LineReader in(line, number_);
      const std::string_view kind = in.word();
      if (kind == "end") break;
      if (kind == "into") {
        values = tenon::parse(*plan_.graph, body);
        for (const Expr& v : values) l.outputs.push_back({in.text(), v});
        if (!in.done()) in.fail("as many buffers as the body returns");
      } else if (kind == "stored") {
        const std::string buffer = in.text();
        const auto it = std::ranges::find(l.outputs, buffer, &Output::buffer);
        if (it == l.outputs.end()) in.fail("a buffer of the 'into' line");
        it->why = in.text();
      } else if (kind == "settled") {
        while (!in.done()) l.settled.push_back(in.text());
      } else if (kind == "apart") {
        l.apart.push_back(parse_apart(in));
      } else {
        body += std::string(line) + "\n";
      }
    }
    if (l.outputs.empty()) head.fail("a launch with an 'into' line");
    form(l, head);
    plan_.phases.back().launches.push_back(std::move(l));
  }

  // All that the planner would store is stored, or none of it.
  void check_stored() {
    const std::vector<Buffer> said = plan_.buffers;
    if (std::ranges::none_of(said, &Buffer::stored)) return;
    for (Buffer& b : plan_.buffers) b.stored = false;
    find_stored(plan_);
    for (size_t i = 0; i < said.size(); ++i)
      TENON_CHECK(Usage, said[i].stored == plan_.buffers[i].stored, "plan")
          << "buffer " << quoted(said[i].name) << (said[i].stored ? " is stored, but is no value" : " is a value")
          << " of weights alone" << (said[i].stored ? "" : ", but is not stored like the others");
  }

  static void form(Launch& l, const LineReader& head) {
    std::optional<std::string> reason;
    try {
      reason = form_launch(l);
      const Expr anchor = anchor_of(l);
      if (!reason && anchor && !arithmetic_of(anchor))
        reason = std::string(anchor->name()) + " does not say what it multiplies in";
    } catch (const Error& e) {  // an unknown skeleton, two anchors
      reason = e.what();
    }
    if (reason) head.fail("a launch that its skeleton runs (" + *reason + ")");
  }

  std::string_view text_;
  size_t at_ = 0;
  int number_ = 0;
  Plan plan_;
};

}  // namespace

std::string print_plan(const Plan& plan) {
  std::ostringstream out;
  out << "plan " << quoted(plan.name) << " arena=" << plan.arena_bytes << " precision " << quoted(plan.precision.text())
      << "\n";
  for (const Buffer& b : plan.buffers) {
    out << "buffer " << quoted(b.name) << " " << name_of(b.dtype) << " " << b.shape.str() << " "
        << kRoles[static_cast<size_t>(b.role)] << " " << name_of(b.rate);
    if (b.in_arena()) out << " offset=" << b.offset;
    out << (b.stored ? " stored\n" : b.outside ? " outside\n" : "\n");
  }
  for (const Phase& p : plan.phases) {
    out << "phase " << name_of(p.rate) << "\n";
    for (const Launch& l : p.launches) print_launch(out, l);
  }
  return out.str();
}

Plan parse_plan(std::string_view text) { return PlanParser(text).parse(); }

}  // namespace tenon
