#include "parallel/plan/roles.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {

void check_servers(const TrainOptions& options, int ranks) {
  require(options.staleness == 0 || options.mode == "ssp",
          fmt::format("--staleness {} in mode {}", options.staleness, options.mode),
          "it applies only to --mode ssp");
  if (options.colocated) {
    require(options.servers == 1, fmt::format("--servers {} --colocated", options.servers),
            "every rank is a server: omit --servers");
  } else {
    require(options.servers >= 1 && options.servers < ranks,
            fmt::format("{} servers among {} ranks", options.servers, ranks),
            "use at least 1 server, and more ranks than servers");
  }
  require(options.mode == "bsp" || options.eval_interval == 0,
          fmt::format("--eval-interval {} in mode {}", options.eval_interval, options.mode),
          "workers that do not wait for each other have no common weights before the end");
  require(
      options.mode == "bsp" || options.checkpoint_interval == 0,
      fmt::format("--checkpoint-interval {} in mode {}", options.checkpoint_interval, options.mode),
      "workers that do not wait for each other have no common state before the end");
  require(options.mode == "bsp" || loss_scaling(options) == "none",
          fmt::format("--loss-scaling {} in mode {}", loss_scaling(options), options.mode),
          "ranks must skip a step together, but these take none together; use --mode bsp or bf16");
}

}  // namespace lockstep
