#include "tenon/runtime/dump.h"

#include <cstdio>

#include "tenon/core/dump.h"
#include "tenon/expr/node_type.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

std::string form_text(const Launch& launch) {
  const Form& form = *launch.form;
  const auto names = skeleton(launch.skeleton).holes();
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
