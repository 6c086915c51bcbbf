// A backend that computes nothing and only advances the clock for each operation, by the larger of
// its arithmetic time and memory time on a processor of given rates (Williams, Waterman and
// Patterson, "Roofline", 2009). With the device `none` and virtual time, it runs the unchanged code
// of layers of any size.
#pragma once

#include <cstdint>
#include <functional>

#include "models/ops/described_backend.h"

namespace lockstep {

struct Roofline {
  double flops_per_s = 400e12;
  double bytes_per_s = 3e12;
  // Which operations take time.
  enum class Timed : std::uint8_t { all, attention, products } timed = Timed::all;
};

class RooflineBackend final : public DescribedBackend {
 public:
  // Each operation calls pass(seconds).
  RooflineBackend(const Roofline& roofline, std::function<void(double)> pass)
      : DescribedBackend(nullptr), roofline_(roofline), pass_(std::move(pass)) {}

  double seconds() const { return seconds_; }
  std::string_view name() const override { return "roofline"; }

 private:
  void run(const KernelCall& call, const std::function<void()>&) override {
    if (roofline_.timed == Roofline::Timed::attention && !call.is_attention) return;
    if (roofline_.timed == Roofline::Timed::products && !call.is_product) return;
    const double seconds =
        std::max(call.operations / roofline_.flops_per_s, call.bytes / roofline_.bytes_per_s);
    seconds_ += seconds;
    pass_(seconds);
  }

  Roofline roofline_;
  std::function<void(double)> pass_;
  double seconds_ = 0;
};

}  // namespace lockstep
