// The menu of schedules. Each entry makes the lists of actions and states its closed forms; p
// ranks, m micro-batches, v stages on every rank, tF, tB = tI + tW the passes of one micro-batch
// through all stages of a rank. Messages take no time in them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "parallel/pipeline/pass_times.h"
#include "parallel/pipeline/schedule.h"

namespace lockstep {

struct ScheduleEntry {
  std::string_view name;
  std::string_view summary;
  // Stages on every rank; 0: as many as asked for.
  int virtual_stages = 1;
  Schedule (*make)(const PipelineShape&);
  // Throws Error (bad_input) naming the rule that the shape breaks. Null where every shape will do.
  void (*check)(const PipelineShape&) = nullptr;

  // From the first action to the last; nothing where the formula does not hold.
  std::string_view makespan_formula;
  std::optional<Rational> (*makespan)(const PipelineShape&, const PassTimes&);
  // The most micro-batches, stage by stage, whose forward pass a rank has begun and whose backward
  // pass (that of the input) it has not finished. Nothing where the formula does not hold.
  std::string_view in_flight_formula;
  std::optional<int> (*in_flight)(const PipelineShape&, int rank);
};

ScheduleEntry naive_schedule();
ScheduleEntry gpipe_schedule();
ScheduleEntry gpipe_lifo_schedule();
ScheduleEntry one_f_one_b_schedule();
ScheduleEntry interleaved_schedule();
ScheduleEntry interleaved_rounds_schedule();
ScheduleEntry looped_bfs_schedule();
ScheduleEntry zb_h1_schedule();
ScheduleEntry zb_h2_schedule();
ScheduleEntry zb_v_schedule();
ScheduleEntry dualpipe_v_schedule();

const std::vector<ScheduleEntry>& schedules();
// Throws Error (bad_input) listing the schedules there are.
const ScheduleEntry& find_schedule(std::string_view name);

// The entry's schedule for `shape`, whose stages on every rank are the entry's where it has its own
// number. Throws Error (bad_input) naming the rule that the shape breaks.
PipelineShape complete(const ScheduleEntry& entry, PipelineShape shape);
Schedule make_schedule(const ScheduleEntry& entry, const PipelineShape& shape);

}  // namespace lockstep
