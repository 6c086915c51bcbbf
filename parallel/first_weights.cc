#include "parallel/first_weights.h"

#include "models/weights.h"

namespace lockstep {

void take_first_weights(const Plan& plan, Parameters& parameters) {
  const std::vector<Parameter> whole = whole_parameters(plan.model);
  if (plan.options.init.empty())
    initialize_weights(parameters, whole, plan.model.layers, plan.options.seed);
  else
    load_weights(plan.options.init, whole, parameters);
}

void give(const Parameters& part, Slice flat, const PartSink& sink) {
  if (flat.device == &host_device()) return sink(part, flat);
  std::vector<std::byte> memory(static_cast<std::size_t>(flat.bytes()));
  const Slice on_host{memory.data(), flat.count, flat.dtype, &host_device()};
  flat.device->copy(on_host, flat);
  sink(part, on_host);
}

}  // namespace lockstep
