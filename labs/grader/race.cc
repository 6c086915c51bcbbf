#include "labs/grader/race.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "labs/grader/submission.h"
#include "models/ops/roofline_backend.h"
#include "parallel/train/dry_run.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

// The plan is the lab's but for the values of its free options. Throws Error (bad_input) naming what is
// different.
TrainOptions options_of(const LabRace& race, const ordered_json& own) {
  const ordered_json fixed = ordered_json::parse(race.plan);
  PlanFile file = plan_from_json(own, race.file);
  for (const char* key : {"technique", "ranks"})
    require(own[key] == fixed[key],
            fmt::format("{}: '{}' is not {}", race.file, key, json_line(fixed[key])),
            "change only the options that the task names");
  const auto is_free = [&](const std::string& key) {
    return std::ranges::find(race.free, key) != race.free.end();
  };
  for (const auto& [key, value] : own["options"].items())
    require(is_free(key) || (fixed["options"].contains(key) && fixed["options"][key] == value),
            fmt::format("{}: the option '{}' is not free", race.file, key),
            "change only the options that the task names");
  for (const auto& [key, value] : fixed["options"].items())
    require(is_free(key) || own["options"].contains(key),
            fmt::format("{}: the option '{}' is missing", race.file, key), "keep what is not free");
  return file.options;
}

// Two steps of each rank in virtual time, without data; the second counts.
RaceTime timed(const LabRace& race, const Plan& plan) {
  RaceTime result;
  std::int64_t most_bytes = 0;
  std::mutex mutex;
  launch({.ranks = plan.ranks,
          .fault = {},
          .clock = Clock::unit,
          .links = parse_links(race.link),
          .device = &none_device()},
         [&](RankContext& context) {
           Transport& clock = context.world.transport();
           RooflineBackend backend(
               {.flops_per_s = race.flops_per_s, .bytes_per_s = race.memory_bytes_per_s},
               [&](double seconds) { clock.advance(seconds); });
           const auto rank = make_rank(context, plan, backend);
           rank->load_weights();
           const CountedStep step = count_dry_step(context, *rank, plan);
           const std::lock_guard lock(mutex);
           result.seconds = std::max(result.seconds, step.seconds);
           most_bytes = std::max(most_bytes, context.ledger.peak_total_bytes());
         });
  if (most_bytes > race.memory_limit)
    result.refused = fmt::format("a rank holds {} bytes at its peak, where {} fit", most_bytes,
                                 race.memory_limit);
  return result;
}

}  // namespace

std::optional<RaceTime> race_time(const Lab& lab, const std::string& submission) {
  if (!lab.race || !std::filesystem::exists(submission + "/" + lab.race->file)) return {};
  try {
    const auto own =
        parse_json<ordered_json>(read_submitted(submission, lab.race->file), lab.race->file);
    const TrainOptions options = options_of(*lab.race, own);
    return timed(*lab.race, plan_of(options, own["ranks"].get<int>()));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    return RaceTime{.seconds = 0, .refused = error.message()};
  }
}

}  // namespace lockstep
