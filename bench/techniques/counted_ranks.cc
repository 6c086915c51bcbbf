#include "bench/techniques/counted_ranks.h"

#include <algorithm>
#include <map>

#include "bench/results/train_json.h"
#include "collectives/transport/launch/launch_symmetric.h"
#include "parallel/plan/symmetry.h"
#include "parallel/train/dry_run.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

CountedRank simulate_rank(RankContext& context, const Plan& plan, const Roofline& roofline) {
  Transport& clock = context.world.transport();
  RooflineBackend backend(roofline, [&](double seconds) { clock.advance(seconds); });
  const auto rank = make_rank(context, plan, backend);
  rank->load_weights();
  double computed = 0;
  const CountedStep step =
      count_dry_step(context, *rank, plan, [&] { computed = backend.seconds(); });
  CountedRank counted{.record = record_of(context, step),
                      .seconds = step.seconds,
                      .compute_seconds = backend.seconds() - computed,
                      .exposed = step.exposed,
                      .passes = rank->last_passes()};
  counted.record.exposed_communication_seconds = step.exposed.sum();
  counted.record.in_flight = rank->finish().in_flight;
  return counted;
}

LaunchOptions world_of(const Plan& plan, const std::string& link) {
  return {.ranks = plan.ranks,
          .fault = {},
          .clock = Clock::unit,
          .links = parse_links(link),
          .device = &none_device()};
}

}  // namespace

std::vector<CountedRank> train_ranks(const Plan& plan, const LaunchOptions& world,
                                     std::vector<double>& seconds, SlowRanks& own) {
  TrainResult result;
  launch(world, [&](RankContext& context) {
    TrainResult mine = train(context, plan);
    if (context.world.rank() == 0) result = std::move(mine);
  });
  for (const StepRecord& step : result.steps)
    if (step.step > 0 || result.steps.size() == 1) seconds.push_back(step.seconds);
  own = slow_ranks(plan, world, result);
  std::vector<CountedRank> ranks;
  for (RankRecord& record : result.ranks) {
    record.exposed_communication_seconds /= static_cast<double>(result.steps.size());
    ranks.push_back({.record = std::move(record)});
  }
  return ranks;
}

std::vector<CountedRank> simulate_ranks(const Plan& plan, const Roofline& roofline,
                                        const std::string& link, std::string* trace) {
  std::vector<CountedRank> ranks(static_cast<std::size_t>(plan.ranks));
  std::vector<std::string> events(ranks.size());
  LaunchOptions world = world_of(plan, link);
  world.trace = trace != nullptr;
  launch(world, [&](RankContext& context) {
    const auto rank = static_cast<std::size_t>(context.world.rank());
    ranks[rank] = simulate_rank(context, plan, roofline);
    if (context.trace) events[rank] = context.trace->events();
  });
  if (trace) *trace = trace_file(events);
  return ranks;
}

std::vector<CountedRank> simulate_kinds_of_ranks(const Plan& plan, const Roofline& roofline,
                                                 const std::string& link) {
  std::map<int, CountedRank> ranks;
  launch_symmetric(world_of(plan, link), stand_ins(plan, parse_links(link)),
                   [&](RankContext& context) {
                     ranks[context.world.rank()] = simulate_rank(context, plan, roofline);
                   });
  std::vector<CountedRank> in_order;
  for (auto& [number, rank] : ranks) in_order.push_back(std::move(rank));
  return in_order;
}

double slowest(const std::vector<CountedRank>& ranks) {
  return std::ranges::max_element(ranks, {}, &CountedRank::seconds)->seconds;
}

}  // namespace lockstep
