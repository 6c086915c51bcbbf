#include "parallel/pipeline/chosen_schedule.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt_config.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/text.h"

namespace lockstep {

PipelineShape shape_of(const TrainOptions& options, int ranks) {
  return {.ranks = ranks,
          .micro_batches = options.micro_batches,
          .virtual_stages = options.chunks,
          .group = options.group_size};
}

Schedule schedule_of(const TrainOptions& options, int ranks) {
  if (options.schedule_file.empty())
    return make_schedule(find_schedule(options.schedule), shape_of(options, ranks));
  constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
  const std::string text = read_text(options.schedule_file, most_bytes);
  return schedule_from_csv(text, options.schedule_file);
}

void check_pipeline(const TrainOptions& options, int ranks) {
  check_shares(options, 1);
  const Schedule schedule = schedule_of(options, ranks);
  check(schedule);
  require(schedule.ranks() == ranks,
          fmt::format("{} is a schedule for {} ranks, and there are {}", options.schedule_file,
                      schedule.ranks(), ranks),
          "use as many --ranks as it has lines");
  require(schedule.micro_batches == options.micro_batches,
          fmt::format("{} is a schedule of {} micro-batches, and --micro-batches is {}",
                      options.schedule_file, schedule.micro_batches, options.micro_batches),
          "use as many");
  const int layers = gpt_config(options.model).layers;
  require(schedule.stages <= layers,
          fmt::format("{} stages of a model with {} layers", schedule.stages, layers),
          "every stage has at least one layer: use fewer --ranks or --chunks");
}

}  // namespace lockstep
