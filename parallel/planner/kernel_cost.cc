#include "parallel/planner/kernel_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

struct GemmTile {
  double rows, columns;
  double SoftwareProfile::*rate;
};
constexpr GemmTile tiles[] = {
    {256, 128, &SoftwareProfile::tile_256x128}, {128, 256, &SoftwareProfile::tile_128x256},
    {128, 128, &SoftwareProfile::tile_128x128}, {128, 64, &SoftwareProfile::tile_128x64},
    {64, 128, &SoftwareProfile::tile_64x128},   {64, 64, &SoftwareProfile::tile_64x64}};

// Tensor cores read rows of whole units.
double of_alignment(double length, const SoftwareProfile& profile) {
  constexpr double unit = 64, least_unit = 8;
  if (std::fmod(length, least_unit) != 0) return 1 + profile.unaligned_8_cost;
  if (std::fmod(length, unit) != 0) return 1 + profile.unaligned_64_cost;
  return 1;
}

constexpr double PassCost::*sums[] = {
    &PassCost::at_peak,      &PassCost::sustained, &PassCost::quantisation,
    &PassCost::memory_bound, &PassCost::tensor,    &PassCost::context,
    &PassCost::expert,       &PassCost::kernels,   &PassCost::issue};

}  // namespace

PassCost& PassCost::operator+=(const PassCost& other) {
  for (const auto part : sums) this->*part += other.*part;
  return *this;
}
PassCost PassCost::operator*(double times) const {
  PassCost result = *this;
  for (const auto part : sums) result.*part *= times;
  return result;
}
PassCost operator+(PassCost a, const PassCost& b) { return a += b; }

IssuedKernels issued(const PassCost& cost) { return {cost.total(), cost.alone(), cost.issue}; }
IssuedKernels operator+(const IssuedKernels& first, const IssuedKernels& then) {
  return {first.busy + then.busy, std::max(first.delay + then.busy, first.issue + then.delay),
          first.issue + then.issue};
}

PassCost product_cost(const ProductShape& shape, const ClusterSheet& cluster,
                      const SoftwareProfile& profile) {
  const auto [m, n, k, batch, fp8, is_grouped, sums_tokens] = shape;
  const double peak = fp8 ? cluster.peak_fp8 : cluster.peak_16bit,
               efficiency = profile.gemm_efficiency * (fp8 ? profile.fp8_relative_efficiency : 1) *
                            (is_grouped ? profile.grouped_relative_efficiency : 1);
  double in_waves = std::numeric_limits<double>::infinity();
  for (const GemmTile& tile : tiles) {
    const double waves = std::ceil(batch * std::ceil(m / tile.rows) * std::ceil(n / tile.columns) /
                                   cluster.multiprocessors);
    in_waves =
        std::min(in_waves, waves * 2 * tile.rows * tile.columns * (k + profile.tile_prologue) /
                               (peak / cluster.multiprocessors * efficiency * profile.*tile.rate));
  }
  in_waves *= of_alignment(n, profile) * of_alignment(sums_tokens ? m : k, profile);
  const double operands =
      (fp8 ? 1 : bytes_of_16_bit) * batch * (m * k + k * n) + bytes_of_16_bit * batch * m * n;
  const double seconds =
      std::max(in_waves, operands / (cluster.memory_bytes_per_second * profile.memory_efficiency)) +
      profile.launch_seconds;
  PassCost cost;
  cost.at_peak = 2 * m * n * k * batch / peak;
  cost.sustained = cost.at_peak / efficiency - cost.at_peak;
  cost.quantisation = seconds - cost.at_peak - cost.sustained;
  cost.kernels = 1;
  return cost;
}

PassCost memory_cost(double bytes, double kernels, double efficiency, const ClusterSheet& cluster,
                     const SoftwareProfile& profile) {
  PassCost cost;
  cost.memory_bound =
      bytes / (cluster.memory_bytes_per_second * efficiency) + kernels * profile.launch_seconds;
  cost.kernels = kernels;
  return cost;
}

}  // namespace lockstep
