// Measures a collective: every size, type, reduction and algorithm, iterations interleaved, results
// checked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/collectives/peer.h"
#include "bench/results/measure.h"
#include "collectives/operations.h"
#include "collectives/transport/launch.h"

namespace lockstep {

// What happens to the buffers between operations. `hot`: nothing, as in nccl-tests; `dirty`: every
// rank writes its input anew before the clock starts; `consume`: that, and it reads its output
// before the clock stops.
enum class Buffers { hot, dirty, consume };
Buffers buffers_from_name(std::string_view name);
std::string_view name_of(Buffers buffers);

struct BenchOptions {
  std::string operation = "all_reduce";
  std::vector<std::string> algorithms;  // empty: auto; "all": the whole table
  std::int64_t min_bytes = 8, max_bytes = std::int64_t{32} << 20;
  int factor = 2;               // each size is that many times the one before, or,
  std::int64_t step_bytes = 0;  // if above 0, so much more
  int iterations = 20, warmup = 5, operations_per_iteration = 1, repetitions = 1;
  std::vector<DType> dtypes = {DType::f32};
  std::vector<ReduceOp> ops = {ReduceOp::sum};
  int root = 0;
  bool check = true;
  // Where the buffers lie. On the device `none` they are addresses alone, for thousands of ranks.
  Device* device = &host_device();
  Buffers buffers = Buffers::hot;
  WhoseTime whose = WhoseTime::slowest;
  // Other libraries, in processes of their own, measured in turn with the algorithms.
  std::vector<std::shared_ptr<Peer>> peers;
  std::vector<std::string> without_effect;  // flags that were given, to be warned of
  std::string serve;                        // this process is such a peer's; what to do lies there
};

// The sizes in bytes for a type, rounded down to what `ranks` ranks can share; each once.
std::vector<std::int64_t> sizes_of(const BenchOptions& options, DType dtype, int ranks);
// Throws Error (bad_input) that names the flag and its range.
void check(const BenchOptions& options, int ranks);

// One algorithm, in place or not, at one point.
struct BenchResult {
  std::string algorithm, transport;
  std::string chosen;  // by auto
  Problem problem;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  bool in_place = false;
  std::vector<double> seconds;  // by iteration, repetition after repetition; of one operation
  double wrong = 0;             // elements, over all ranks; below 0: not checked
  double copy_seconds = 0;   // of a plain copy of the same bytes by all ranks, in the same rounds
  double model_seconds = 0;  // what the closed form says; 0 where there is none

  // Adds what another repetition of the same measured.
  void add(const BenchResult& repetition);
  double algbw_gb_per_s() const;
  double busbw_gb_per_s(Operation operation) const;
  // The time a copy of all bytes that the operation must read and write would take, over its own.
  double copy_share(Operation operation) const;
};

struct BenchRun {
  std::vector<BenchResult> results;
  std::vector<std::string> skipped;  // "recursive_doubling: needs a power of two of ranks ..."
  LinkModel links;                   // that the model's figures are for
  std::string library;               // of `vendor`, where there is one
};

// Measures an operation among the first `ranks` ranks of the world; what the others do, if there
// are any, is the operation's. The same results on every rank. Rank 0 prints the table as it goes.
BenchRun bench_operation(RankContext& context, const OperationEntry& entry, int ranks,
                         const BenchOptions& options, const LaunchOptions& world);

// What was measured, as Google Benchmark writes it, with the samples added to each entry.
std::string bench_json(const BenchRun& run, const OperationEntry& entry,
                       const BenchOptions& options, const LaunchOptions& world);

}  // namespace lockstep
