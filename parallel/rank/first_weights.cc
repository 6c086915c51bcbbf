#include "parallel/rank/first_weights.h"

#include "models/gpt/router_biases.h"

namespace lockstep {

FirstWeights::FirstWeights(const Plan& plan)
    : plan_(plan),
      whole_(whole_parameters(plan.model)),
      adapters_(whole_adapters(plan.model, lora_config(plan.options))) {
  if (!plan.options.lora_init.empty()) adapter_file_.emplace(plan.options.lora_init, adapters_);
  if (plan.options.init.empty()) return;
  file_.emplace(plan.options.init, whole_);
  check_biases(plan.options.init, file_->biases(), plan.model);
}

void FirstWeights::set(Parameters& parameters) const {
  const bool are_adapters = plan_.trains_adapters() && !parameters.are_frozen();
  if (are_adapters && adapter_file_)
    adapter_file_->read(parameters);
  else if (are_adapters)
    initialize_weights(parameters, adapters_, plan_.model.layers, plan_.options.seed,
                       whole_.size());
  else if (file_)
    file_->read(parameters);
  else
    initialize_weights(parameters, whole_, plan_.model.layers, plan_.options.seed);
}

void give(const Parameters& part, Slice flat, const PartSink& sink) {
  if (flat.device == &host_device()) return sink(part, flat);
  std::vector<std::byte> memory(static_cast<std::size_t>(flat.bytes()));
  const Slice on_host{memory.data(), flat.count, flat.dtype, &host_device()};
  flat.device->copy(on_host, flat);
  sink(part, on_host);
}

}  // namespace lockstep
