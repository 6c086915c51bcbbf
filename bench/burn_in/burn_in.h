// Looks for machines that are slow or compute wrong. In each pass every rank measures its matrix
// products and its memory, all links between ranks are measured, all-reduces of several sizes are
// timed and their sums checked, and training steps are repeated, whose bits must be the same each
// time and on all ranks. What is wrong is named as soon as it shows (findings.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/burn_in/rank_tests.h"
#include "bench/burn_in/series.h"
#include "bench/pairs/pairs.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/plan/options.h"

namespace lockstep {

// What every host must have; if not given, as much as most hosts have.
struct ExpectedParts {
  std::optional<int> cores, gpus;
  std::optional<Count> memory_bytes;
};

struct BurnInOptions {
  double minutes = 1;       // no pass begins later
  std::int64_t passes = 0;  // above 0: instead
  Count product_size = 256, copy_bytes = Count{16} << 20;
  // In ascending order, multiples of the size of an f32.
  std::vector<Count> all_reduce_bytes = {4, 256, Count{16} << 10, Count{1} << 20};
  PairsOptions pairs = [] {
    PairsOptions options;
    options.large_bytes = Count{256} << 10;
    options.iterations = 4;
    options.has_tests = false;
    return options;
  }();
  TrainOptions training = [] {  // the steps that are replayed
    TrainOptions options;
    options.global_batch = 2;
    options.steps = 2;
    return options;
  }();
  std::optional<FlippedBit> flipped;
  ExpectedParts expected;
  Device* device = &host_device();

  double effect() const { return pairs.effect; }
};

// What a rank says of its machine.
struct RankMachine {
  RankSite site;
  std::string processor;
  int cores = 0;
  double memory_bytes = 0;
  int gpus = 0;  // counted if ranks compute on one, or some are expected
  std::string why_no_gpus = {};
};

// Ranks or passes in which something was wrong.
struct WrongCount {
  std::int64_t times = 0, first_pass = 0;
  void add(std::int64_t pass, std::int64_t more = 1) {
    if (times == 0) first_pass = pass;
    times += more;
  }
};

struct BurnInRun {
  std::string transport;
  std::vector<RankMachine> machines;  // by rank
  std::int64_t passes = 0;            // complete ones
  double seconds = 0;
  std::vector<Series> products, copies;  // seconds, by rank
  PairsRun links;                        // with the samples of all passes; no links on one rank
  std::vector<Series> all_reduces;       // seconds, by size
  std::vector<WrongCount> wrong_sums;    // elements, by rank
  std::map<WrongBits, std::vector<WrongCount>> wrong_bits;  // steps, by rank
  std::int64_t steps_compared = 0;
};

// Throws Error (bad_input) naming the flag and its range.
void check(const BurnInOptions& options, int ranks);

// Every rank calls it. `after_pass` is called on rank 0.
void burn_in(RankContext& context, const BurnInOptions& options, const LaunchOptions& world,
             const std::function<void(const BurnInRun&)>& after_pass);

}  // namespace lockstep
