#include "models/backend.h"

#include <vector>

#include "collectives/base/device.h"

namespace lockstep {
namespace {

std::vector<double> on_host(Slice slice) {
  std::vector<double> numbers(static_cast<std::size_t>(slice.count));
  slice.device->convert(host_slice(std::span(numbers)), slice);
  return numbers;
}

}  // namespace

Routing Backend::route(const Router& router, Slice scores, Count sequences) {
  if (!scores.device->stores())
    return router.choose_as_assumed(scores.count / router.config().number, sequences);
  return router.choose(on_host(scores), sequences);
}

void Backend::route_backward(const Router& router, Slice dscores, Slice scores, Slice products,
                             const Routing& routing, Count sequences, double scale) {
  if (!scores.device->stores()) return;
  std::vector<double> gradient(static_cast<std::size_t>(dscores.count));
  router.backward(gradient, on_host(scores), on_host(products), routing, sequences, scale);
  dscores.device->convert(dscores, host_slice(std::span(gradient)));
}

}  // namespace lockstep
