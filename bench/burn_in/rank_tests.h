// What one rank measures of its own machine: matrix products, its memory, and training steps that
// it repeats.
#pragma once

#include <optional>
#include <vector>

#include "bench/burn_in/replay_votes.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/plan/options.h"

namespace lockstep {

// Two square matrices and their product: 2 n^3 operations.
class ProductTest {
 public:
  ProductTest(Device& device, Count size);
  // Seconds of one product, the mean over several.
  double seconds();

 private:
  Device& device_;
  Count size_;
  Memory a_, b_, product_;
};

// Copies of a buffer, which reads and writes its bytes.
class CopyTest {
 public:
  CopyTest(Device& device, Count bytes);
  // Seconds of one copy, the mean over several.
  double seconds();

 private:
  Device& device_;
  Memory from_, into_;
};

// For tests and lessons: one bit of a gradient is wrong, the first time that its step is computed.
struct FlippedBit {
  int rank = 0;
  std::int64_t step = 0;  // of all that the rank computes, over all passes
};

// Takes the training's steps from its initial weights on this rank alone, each one twice. Returns
// their bits. The first step is the rank's number `number`, for `flipped`.
std::vector<StepBits> replay(const TrainOptions& training, Device& device,
                             const std::optional<FlippedBit>& flipped, std::int64_t number);

}  // namespace lockstep
