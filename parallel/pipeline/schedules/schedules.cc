#include "parallel/pipeline/schedules/schedules.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "collectives/base/limits.h"
#include "parallel/pipeline/schedules/lab.h"

namespace lockstep {

namespace {

std::vector<ScheduleEntry> with_lab(std::vector<ScheduleEntry> entries) {
  const auto add = [&](std::string_view name, ScheduleEntry like, decltype(like.make) make) {
    if (!make) return;
    like.name = name;
    like.summary = "the code of a lab";
    like.make = make;
    entries.push_back(like);
  };
  const LabSchedules& lab = lab_schedules();
  add("lab-gpipe", gpipe_schedule(), lab.gpipe);
  add("lab-1f1b", one_f_one_b_schedule(), lab.one_f_one_b);
  add("lab-zb-h1", zb_h1_schedule(), lab.zb_h1);
  add("lab-zb-h2", zb_h2_schedule(), lab.zb_h2);
  return entries;
}

}  // namespace

const std::vector<ScheduleEntry>& schedules() {
  static const std::vector<ScheduleEntry> entries =
      with_lab({naive_schedule(), gpipe_schedule(), gpipe_lifo_schedule(), one_f_one_b_schedule(),
                interleaved_schedule(), interleaved_rounds_schedule(), looped_bfs_schedule(),
                zb_h1_schedule(), zb_h2_schedule(), zb_v_schedule(), dualpipe_v_schedule()});
  return entries;
}

const ScheduleEntry& find_schedule(std::string_view name) {
  std::string known;
  for (const ScheduleEntry& entry : schedules()) {
    if (entry.name == name) return entry;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  require(false, fmt::format("unknown schedule '{}'", name),
          name.starts_with("lab-") ? "name the folder of your code in LOCKSTEP_LAB"
                                   : fmt::format("choose one of {}", known));
  return schedules().front();
}

std::vector<std::string> expanded_schedules(const std::vector<std::string>& given) {
  std::vector<std::string> names;
  for (const std::string& name : given) {
    if (name != "all") find_schedule(name);
    for (const ScheduleEntry& entry : schedules())
      if ((name == "all" || name == entry.name) && std::ranges::count(names, entry.name) == 0)
        names.emplace_back(entry.name);
  }
  return names;
}

PipelineShape complete(const ScheduleEntry& entry, PipelineShape shape) {
  if (shape.virtual_stages == 0)
    shape.virtual_stages = entry.virtual_stages == 0 ? 2 : entry.virtual_stages;
  require(shape.ranks >= 1, fmt::format("a pipeline of {} ranks", shape.ranks), "use 1 or more");
  require(shape.micro_batches >= 1, fmt::format("{} micro-batches", shape.micro_batches),
          "use 1 or more");
  require(shape.virtual_stages >= 1, fmt::format("{} stages on every rank", shape.virtual_stages),
          "use 1 or more");
  require(entry.virtual_stages == 0 || entry.virtual_stages == shape.virtual_stages,
          fmt::format("schedule {} with {} stages on every rank", entry.name, shape.virtual_stages),
          fmt::format("it has {}", entry.virtual_stages));
  require(shape.group >= 0, fmt::format("groups of {} micro-batches", shape.group),
          "use 0, for as many as ranks, or more");
  require(shape.group == 0 || entry.name == "interleaved",
          fmt::format("groups of {} micro-batches in schedule {}", shape.group, entry.name),
          "only interleaved takes them in groups");
  constexpr double most_actions = 5e7, bytes_of_action = 150;  // also of its times
  const double actions =
      static_cast<double>(shape.ranks) * shape.virtual_stages * shape.micro_batches;
  const std::string what = fmt::format("{} ranks with {} stages each and {} micro-batches",
                                       shape.ranks, shape.virtual_stages, shape.micro_batches);
  require(actions <= most_actions, what, "their product must be at most 50 million");
  require_memory(actions * bytes_of_action, "a schedule of " + what,
                 "use fewer ranks, stages or micro-batches");
  if (entry.check) entry.check(shape);
  return shape;
}

Schedule make_schedule(const ScheduleEntry& entry, const PipelineShape& shape) {
  return entry.make(complete(entry, shape));
}

}  // namespace lockstep
