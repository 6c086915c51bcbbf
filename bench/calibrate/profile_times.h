// The times that a profile gives for kernels and collectives of any size, between those it has
// measured.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "bench/calibrate/machine_profile.h"

namespace lockstep {

// Seconds of kernels: CPU time, or a GPU's.
//
//   t = w * sum_i d_i^-4 (t_i / w_i) / sum_i d_i^-4      over the nearest measured calls of the kernel
//
// w are a call's operations or, where it has none, its bytes; d is the distance between the logarithms
// of shapes and of w. A measured call has its own time. Shepard, "A two-dimensional interpolation
// function for irregularly-spaced data", 1968.
class KernelTimes {
 public:
  // `time`: one of OwnSeconds. Throws Error (bad_input) if the profile lacks it.
  KernelTimes(const MachineProfile& profile, double OwnSeconds::*time);
  // Throws Error (bad_input) if the profile has no call of this kernel with this type.
  double seconds(const KernelCall& call);
  double between_kernels() const { return between_kernels_; }

 private:
  // Logarithms of rows, columns, depth and w, and the seconds for each unit of w.
  using Place = std::array<double, 4>;
  struct Point {
    Place place;
    double per_unit = 0;
  };
  using Kind = std::pair<std::string, DType>;

  std::map<Kind, std::vector<Point>, std::less<>> points_;
  std::map<std::tuple<Kind, Place>, double> known_;
  double between_kernels_;
};

// Seconds of collectives, linear between the logarithms of the two nearest sizes; beyond the largest
// size proportional to the bytes, below the smallest one the same.
class CollectiveTimes {
 public:
  // `transport`: one of host_transports, or nccl.
  CollectiveTimes(const MachineProfile& profile, std::string transport);
  // Throws Error (bad_input) if the profile does not have this operation over the transport, with the
  // algorithm and the number of ranks.
  double seconds(std::string_view operation, std::string_view algorithm, int ranks,
                 double bytes) const;

 private:
  std::string transport_;
  std::map<std::tuple<std::string, std::string, int>, std::map<double, double>> seconds_;
};

}  // namespace lockstep
