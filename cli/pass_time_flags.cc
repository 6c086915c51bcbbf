#include "cli/pass_time_flags.h"

#include <fmt/format.h>

namespace lockstep {

void PassTimeFlags::add(CLI::App& app) {
  app.add_option("--forward", forward,
                 "time of a rank's forward pass of a micro-batch: 2, 0.5, 1/3")
      ->capture_default_str();
  app.add_option("--input-gradient", input_gradient, "time of the first half of its backward pass")
      ->capture_default_str();
  app.add_option("--weight-gradient", weight_gradient, "time of the second half")
      ->capture_default_str();
  app.add_option("--hop", hop, "time of a message between two ranks")->capture_default_str();
}

PassTimes PassTimeFlags::times() const {
  return {.forward = rational_from(forward),
          .input_gradient = rational_from(input_gradient),
          .weight_gradient = rational_from(weight_gradient),
          .hop = rational_from(hop)};
}

std::string text_of(const PassTimes& times) {
  return fmt::format("forward {}, input gradient {}, weight gradient {}; hop {}",
                     text_of(times.forward), text_of(times.input_gradient),
                     text_of(times.weight_gradient), text_of(times.hop));
}

}  // namespace lockstep
