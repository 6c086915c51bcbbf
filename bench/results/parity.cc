#include "bench/results/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "models/gpt/safetensors.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_unlike(const std::string& what) {
  throw Error(ErrorKind::wrong_result, what, {.hint = "compare runs of the same training"});
}

double relative(double difference, double size) {
  return size == 0 ? difference : difference / size;
}

std::vector<double> values(const SafetensorsFile& file, const TensorEntry& tensor) {
  std::vector<double> result(static_cast<std::size_t>(tensor.count()));
  file.read(tensor, host_slice(std::span(result)));
  return result;
}

}  // namespace

double result_difference(const nlohmann::json& a, const nlohmann::json& b) {
  double largest = 0;
  const auto compare = [&](const char* list, const char* key) {
    if (a[list].size() != b[list].size())
      throw_unlike(fmt::format("{} and {} entries in {}", a[list].size(), b[list].size(), list));
    for (std::size_t i = 0; i < a[list].size(); ++i) {
      const double x = a[list][i][key], y = b[list][i][key];
      largest = std::max(largest, relative(std::abs(x - y), std::abs(y)));
    }
  };
  compare("steps", "loss");
  compare("steps", "grad_norm");
  compare("validation", "loss");
  return largest;
}

double weights_difference(const std::string& a, const std::string& b) {
  const SafetensorsFile file_a(a), file_b(b);
  if (file_a.tensors().size() != file_b.tensors().size())
    throw_unlike(fmt::format("{} has {} tensors, {} has {}", a, file_a.tensors().size(), b,
                             file_b.tensors().size()));
  double largest = 0;
  for (const TensorEntry& tensor : file_a.tensors()) {
    const auto other = std::ranges::find(file_b.tensors(), tensor.name, &TensorEntry::name);
    if (other == file_b.tensors().end() || other->shape != tensor.shape)
      throw_unlike(fmt::format("{} has no {} of the same shape as {}", b, tensor.name, a));
    const std::vector<double> x = values(file_a, tensor), y = values(file_b, *other);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      difference += (x[i] - y[i]) * (x[i] - y[i]);
      size += y[i] * y[i];
    }
    largest = std::max(largest, relative(std::sqrt(difference), std::sqrt(size)));
  }
  return largest;
}

}  // namespace lockstep
