// Plans as text, line by line:
//   plan "name" arena=BYTES precision "policy"
//   buffer "name" dtype shape role rate offset=BYTES, or outside, or stored; nothing for a state kept by the runtime
//   phase rate
//   launch skeleton "name"
//     %0 = ...            its expressions, as they print
//     return %a, %b
//     into "buffer" ..    one name per result
//     stored "buffer" "why"  for each result whose storing had to be decided
//     settled "buffer" .. those it reads that neither it nor the previous launch writes
//     apart kind "what" "why", then "launch" "hole" for each place where it went
//   end
#include <cstdio>
#include <sstream>

#include "tenon/core/dump.h"
#include "tenon/core/line.h"
#include "tenon/kernels/skeleton.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

void print_launch(std::ostringstream& out, const Launch& l) {
  out << "launch " << l.skeleton << " " << quoted(l.name) << "\n";
  std::vector<Expr> values;
  for (const Output& o : l.outputs) values.push_back(o.value);
  std::istringstream lines(print(values));
  for (std::string line; std::getline(lines, line);) out << "  " << line << "\n";
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

std::string form_text(const Launch& launch) {
  const Form& form = *launch.form;
  const auto& names = skeleton(launch.skeleton).holes;
  std::string out;
  const auto add = [&](const std::string& title, const Expr& value) { out += "\n" + title + "\n" + print(value); };
  for (const Let& let : form.lets) add("let " + let.leaf->attrs.text + ", once a launch", let.value);
  for (size_t i = 0; i < form.holes.size(); ++i)
    add("hole " + (i < names.size() ? std::string(names[i]) : std::to_string(i)), form.holes[i]);
  for (const FormOutput& o : form.updates) add("update " + o.buffer, o.value);
  for (const FormOutput& o : form.outputs)
    add("output " + o.buffer + (o.statistic ? ", " + std::string(o.statistic->name) + " of" : ""), o.value);
  return out;
}

}  // namespace

std::string place_text(const Buffer& b) {
  if (b.in_arena()) return " offset=" + std::to_string(b.offset);
  return b.stored ? " stored" : b.outside ? " outside" : "";
}

std::string print_plan(const Plan& plan) {
  std::ostringstream out;
  out << "plan " << quoted(plan.name) << " arena=" << plan.arena_bytes << " precision " << quoted(plan.precision.text())
      << "\n";
  for (const Buffer& b : plan.buffers)
    out << "buffer " << quoted(b.name) << " " << name_of(b.dtype) << " " << b.shape.str() << " "
        << kRoleNames[static_cast<size_t>(b.role)] << " " << name_of(b.rate) << place_text(b) << "\n";
  for (const Phase& p : plan.phases) {
    out << "phase " << name_of(p.rate) << "\n";
    for (const Launch& l : p.launches) print_launch(out, l);
  }
  return out.str();
}

void dump_plan(const Plan& plan) {
  if (!dumping()) return;
  dump(plan.name + ".plan", print_plan(plan));
  size_t i = 0;
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches) {
      char number[16];
      std::snprintf(number, sizeof number, "%04zu", i++);
      dump("forms/" + plan.name + "/" + number + "-" + l.name + ".txt",
           l.name + ": " + l.skeleton + ", phase " + std::string(name_of(p.rate)) + "\n" + form_text(l));
    }
}

}  // namespace tenon
