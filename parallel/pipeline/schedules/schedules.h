// The menu of schedules. Each entry has a generator and its closed forms, with p ranks, m
// micro-batches and v stages per rank; tF and tB = tI + tW are the times of one micro-batch through
// all stages of a rank. The closed forms assume that messages take no time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/pipeline/schedules/pass_times.h"
#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

struct ScheduleEntry {
  std::string_view name;
  std::string_view summary;
  // Stages on every rank; 0: the shape decides.
  int virtual_stages = 1;
  // The weights' gradients are passes of their own; until they run, activations are held.
  bool splits_backward = false;
  Schedule (*make)(const PipelineShape&);
  // Throws Error (bad_input) naming the rule that the shape breaks. Null if every shape fits.
  void (*check)(const PipelineShape&) = nullptr;

  // From the first action to the last; empty if the formula does not hold.
  std::string_view makespan_formula;
  std::optional<Rational> (*makespan)(const PipelineShape&, const PassTimes&);
  // The most micro-batches, counted per stage, whose forward pass a rank has begun and whose
  // backward pass (the input's gradient) it has not finished. Empty if the formula does not hold.
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

// The given names, with those of all schedules instead of "all". Throws Error (bad_input) as
// find_schedule() does.
std::vector<std::string> expanded_schedules(const std::vector<std::string>& given);

// `shape` with virtual_stages 0 replaced by the entry's own number, or 2; and the entry's schedule
// for it. Both throw Error (bad_input) naming the rule that the shape breaks.
PipelineShape complete(const ScheduleEntry& entry, PipelineShape shape);
Schedule make_schedule(const ScheduleEntry& entry, const PipelineShape& shape);

}  // namespace lockstep
