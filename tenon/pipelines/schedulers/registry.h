// Self-registration of schedulers: a scheduler's file holds one RegisterScheduler at namespace scope.
#pragma once
#include "tenon/pipelines/schedulers/scheduler.h"

namespace tenon {

/// When a sampler takes Karras noise levels.
enum class KarrasLevels : uint8_t {
  Never,
  IfAsked,      ///< its class of diffusers has no use_karras_sigmas: only SchedulerOptions turn them on
  IfConfigured  ///< where SchedulerOptions say nothing, use_karras_sigmas of the config decides
};

struct SchedulerInfo {
  std::string name;                        ///< main name, as scheduler_names() prints it
  std::string a1111_name;                  ///< as AUTOMATIC1111's web UI calls it, in what pictures say of themselves
  std::vector<std::string> aliases;        ///< other accepted names
  std::string diffusers_class;             ///< `_class_name` that selects it
  std::optional<double> default_eta = {};  ///< share of fresh noise; unset: the sampler has no eta
  KarrasLevels karras = KarrasLevels::Never;
  /// Gets the options of choose_sampler: set if the sampler has them.
  std::function<std::unique_ptr<Scheduler>(const Settings&, const SchedulerOptions&)> make;
};

struct RegisterScheduler {
  explicit RegisterScheduler(SchedulerInfo info);
};

}  // namespace tenon
