#include "models/gpt/merge_adapters.h"

#include "models/gpt/adapter_files.h"
#include "models/gpt/weights.h"

namespace lockstep {
namespace {

Matrix matrix_of(const Parameters& parameters, const std::string& name) {
  const int i = parameters.index(name);
  const std::vector<Count>& shape = parameters.list()[static_cast<std::size_t>(i)].shape;
  return {parameters.value(i), shape.front(), shape.back()};
}

}  // namespace

void merge_adapters(const GptConfig& model, const std::string& init, const std::string& adapters,
                    const std::string& path, DType dtype) {
  const LoraConfig lora = read_lora_config(adapter_config_path(adapters));
  check(lora, model);
  check_weights_output(path, model);
  Ledger ledger;
  Parameters trained(DType::f64, ledger);
  Adapters all(trained, lora, ledger);
  Parameters weights(DType::f64, ledger, {}, &all);
  const GptStage registers(weights, model, {.first = 0, .count = model.layers}, host_backend(),
                           ledger);
  trained.allocate();
  weights.allocate();
  WeightsReader(init, weights.list()).read(weights);
  AdapterReader(adapters, trained.list()).read(trained);

  constexpr std::string_view suffix = ".lora_A";
  for (const Parameter& parameter : trained.list()) {
    if (!parameter.name.ends_with(suffix)) continue;
    const std::string layer = parameter.name.substr(0, parameter.name.size() - suffix.size());
    const Matrix a = matrix_of(trained, layer + ".lora_A");
    host_backend().scale(a.slice, lora.scale());
    host_backend().gemm(a.t(), matrix_of(trained, layer + ".lora_B"),
                        matrix_of(weights, layer + ".weight"), 1);
  }

  WeightsFile file(path, weights.list(), dtype, model);
  for (std::size_t i = 0; i < weights.list().size(); ++i) {
    const Slice values = weights.value(static_cast<int>(i));
    std::vector<std::byte> memory(static_cast<std::size_t>(values.count * element_bytes(dtype)));
    const Slice rounded{memory.data(), values.count, dtype, &host_device()};
    rounded.device->convert(rounded, values);
    file.write(i, 0, rounded);
  }
  file.finish();
}

}  // namespace lockstep
