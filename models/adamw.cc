#include "models/adamw.h"

#include <cstring>

namespace lockstep {

AdamW::AdamW(Parameters& parameters, const AdamWOptions& options, Ledger& ledger)
    : parameters_(parameters),
      options_(options),
      first_moment_({parameters.count()}, parameters.dtype(), ledger, MemoryUse::optimizer),
      second_moment_({parameters.count()}, parameters.dtype(), ledger, MemoryUse::optimizer) {
  for (const Tensor* moment : {&first_moment_, &second_moment_})
    std::memset(moment->slice().data, 0, static_cast<std::size_t>(moment->slice().bytes()));
}

void AdamW::step(double learning_rate, double gradient_scale) {
  ++steps_;
  for (const Parameter& parameter : parameters_.list()) {
    const auto part = [&](Slice flat) { return flat.part(parameter.offset, parameter.count); };
    host_backend().adamw(part(parameters_.values()), part(parameters_.gradients()),
                         part(first_moment_.slice()), part(second_moment_.slice()),
                         {.learning_rate = learning_rate,
                          .beta1 = options_.beta1,
                          .beta2 = options_.beta2,
                          .eps = options_.eps,
                          .weight_decay = parameter.decays() ? options_.weight_decay : 0,
                          .gradient_scale = gradient_scale,
                          .step = steps_});
  }
}

double squared_norm(Slice gradients) { return host_backend().squared_norm(gradients); }

}  // namespace lockstep
