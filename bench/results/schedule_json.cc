#include "bench/results/schedule_json.h"

#include <nlohmann/json.hpp>

#include "bench/results/theory_json.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

ordered_json rank_of(const Timeline& timeline, int rank) {
  const RankTimeline& line = timeline.ranks[static_cast<std::size_t>(rank)];
  ordered_json actions = ordered_json::array();
  for (const Interval& interval : line.intervals) {
    ordered_json action = {{"stage", interval.action.stage},
                           {"pass", name_of(interval.action.pass)},
                           {"micro_batch", interval.action.micro_batch},
                           {"begin", value_of(timeline.time(interval.begin))},
                           {"end", value_of(timeline.time(interval.end))},
                           {"with_next", interval.action.with_next}};
    if (!is_compute(interval.action.pass)) action.erase("micro_batch");
    actions.push_back(action);
  }
  return {{"rank", rank},
          {"busy", value_of(timeline.busy(rank))},
          {"idle", value_of(timeline.idle(rank))},
          {"inner_idle", value_of(timeline.inner_idle(rank))},
          {"in_flight", line.in_flight},
          {"unfinished", line.unfinished},
          {"unsharded", line.unsharded},
          {"actions", actions}};
}

}  // namespace

std::string schedule_json(const ScheduleResult& result) {
  const Timeline& timeline = result.timeline;
  ordered_json file = {{"schema", "lockstep.schedule/1"},
                       {"name", result.name},
                       {"config",
                        {{"ranks", result.schedule.ranks()},
                         {"stages", result.schedule.stages},
                         {"micro_batches", result.schedule.micro_batches},
                         {"forward", value_of(result.times.forward)},
                         {"input_gradient", value_of(result.times.input_gradient)},
                         {"weight_gradient", value_of(result.times.weight_gradient)},
                         {"hop", value_of(result.times.hop)},
                         {"unshard", value_of(result.times.unshard)},
                         {"reduce_gradients", value_of(result.times.reduce_gradients)}}},
                       {"makespan", value_of(timeline.makespan())},
                       {"bubble",
                        {{"fraction", value_of(timeline.bubble_fraction())},
                         {"overhead", value_of(timeline.bubble_overhead())}}},
                       {"ranks", ordered_json::array()},
                       {"theory", theory_json(result.theory)}};
  for (int rank = 0; rank < result.schedule.ranks(); ++rank)
    file["ranks"].push_back(rank_of(timeline, rank));
  return json_text(file);
}

}  // namespace lockstep
