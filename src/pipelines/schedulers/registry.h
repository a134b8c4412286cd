// Self-registration of schedulers: a scheduler's file holds one RegisterScheduler at namespace scope.
#pragma once
#include "tenon/pipelines/schedulers/scheduler.h"

namespace tenon {

struct SchedulerInfo {
  std::string name;                  ///< main name, as scheduler_names() prints it
  std::vector<std::string> aliases;  ///< other accepted names
  std::string diffusers_class;       ///< `_class_name` that selects it
  bool takes_eta = false;
  bool takes_karras = false;
  std::function<std::unique_ptr<Scheduler>(const nlohmann::json&, const SchedulerOptions&)> make;
};

struct RegisterScheduler {
  explicit RegisterScheduler(SchedulerInfo info);
};

}  // namespace tenon
