// Measures a collective over sizes, types, reductions and algorithms, with interleaved iterations
// and checked results.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/collectives/blocks.h"
#include "bench/collectives/peer.h"
#include "bench/collectives/skew.h"
#include "bench/collectives/split.h"
#include "bench/results/measure.h"
#include "bench/results/outliers.h"
#include "collectives/base/rank_site.h"
#include "collectives/operations/operations.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {

// The use of the buffers between operations. `hot`: none, as in nccl-tests; `dirty`: every rank
// rewrites its input before the clock starts; `consume`: as dirty, and it reads its output before
// the clock stops.
enum class Buffers { hot, dirty, consume };
Buffers buffers_from_name(std::string_view name);
std::string_view name_of(Buffers buffers);

// Out-of-place, the result has a buffer of its own; in-place it replaces the input.
enum class Placements { both, out_of_place, in_place };

struct BenchResult;

// What rank 0 prints.
struct TableOptions {
  bool is_nccl = false;  // the columns of nccl-tests and no others
  bool timestamps = false;
  bool iterations = false;     // statistics of single iterations
  int skipped_iterations = 0;  // the first ones of each repetition, which these leave out
  bool memory = false;
  bool each_repetition = false;       // a row for each repetition, not one for all
  std::optional<double> least_busbw;  // GB/s: what the average must reach, within a tenth
};

struct BenchOptions {
  std::string operation = "all_reduce";
  std::vector<std::string> algorithms;  // empty: auto; "all": all of the table
  std::int64_t min_bytes = 8, max_bytes = std::int64_t{32} << 20;
  int factor = 2;               // from one size to the next
  std::int64_t step_bytes = 0;  // if above 0, added to each size instead
  int iterations = 20, warmup = 5, operations_per_iteration = 1, repetitions = 1;
  bool endless = false;  // repeats until elements are wrong, and keeps the last repetition only
  std::vector<DType> dtypes = {DType::f32};
  std::vector<ReduceOp> ops = {ReduceOp::sum};
  bool scaled_sums = false;  // also the sum of inputs that each rank multiplies first
  int root = 0;
  bool all_roots = false;
  Count offset = 0;  // elements from an aligned address to the begin of each buffer
  Placements placements = Placements::both;
  int running_ranks = 0;  // in virtual time, the first ranks, which stand in for all; 0: all run
  std::vector<BenchResult> measured;  // measured before, on every rank, where ranks differ
  bool measures_more = true;          // than those
  Skew skew;                          // for all_to_all_v
  Split split;                        // of the ranks into groups that run at the same time
  int communicators = 1;              // of the same ranks, each with an operation at the same time
  Blocks blocks;                      // in which the caller's data lie apart
  int checks = 1;                     // of each result, each on other data; 0: none
  // Holds the buffers. `none` has no memory behind its addresses: for thousands of ranks.
  Device* device = &host_device();
  Buffers buffers = Buffers::hot;
  WhoseTime whose = WhoseTime::slowest;
  // Other libraries, in their own processes, measured alternating with the algorithms.
  std::vector<std::shared_ptr<Peer>> peers;
  std::vector<std::string> without_effect;  // given flags to warn about, with reasons
  std::string serve;                        // if this process is a peer's: the path of its board
  bool cold = false;                        // also times the first operation of all
  bool prints = true;                       // rank 0 prints the table
  TableOptions table;
};

constexpr std::int64_t most_buffer_bytes = std::int64_t{1} << 36;

// "64K" is 65536: suffixes are powers of 1024, as in nccl-tests. Empty if the text is not such a
// number; the largest number if it is too large.
std::optional<std::int64_t> bytes_from(std::string_view text);
// The sizes in bytes for a type, each once, rounded down so that `ranks` ranks can split them.
std::vector<std::int64_t> sizes_of(const BenchOptions& options, DType dtype, int ranks);
// Throws Error (bad_input) naming the flag and its range.
void check(const BenchOptions& options, int ranks);

// One algorithm, in-place or out-of-place, at one point.
struct BenchResult {
  std::string algorithm, transport;
  std::string chosen;  // the algorithm that auto chose
  Problem problem;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  bool is_scaled = false;  // a sum of inputs that each rank multiplies first
  bool in_place = false;
  int communicators = 1;        // that have an operation each at the same time
  std::vector<double> seconds;  // per operation, by iteration, repetition after repetition
  double wrong = 0;             // elements, over all ranks; below 0: not checked
  double copy_seconds = 0;  // for a plain copy of the same bytes by all ranks, in the same rounds
  Estimate model;           // by the closed form; 0 if there is none
  OwnRuns own;              // this rank's times, per iteration
  std::vector<double> group_seconds;  // if ranks are split: those of this rank's group
  // Whether all ranks do the same work, so that the own times of slow ranks are outliers.
  bool equal_work = false;

  // "sum"; "mulsum" if it is scaled.
  std::string_view reduction() const { return is_scaled ? "mulsum" : name_of(op); }
  // Adds the samples of another repetition of the same measurement.
  void add(const BenchResult& repetition);
  // Of all communicators together.
  double algbw_gb_per_s() const;
  double busbw_gb_per_s(Operation operation) const;
  // The time to copy all bytes that the operation must read and write, divided by its own time.
  double copy_share(Operation operation) const;
};

// The times of one rank in all repetitions of a result, in seconds per iteration.
struct RankRow {
  double late = 0;        // arrives at the barrier before the operation after the first rank
  double seconds = 0;     // from the barrier to the end of the operation
  int counted = 0;        // iterations for which the values below are known
  MeasuredTime own = {};  // without waiting for other ranks
  double waited = 0;
  std::vector<WaitTimes::Waited> waited_for;  // by world rank, the longest first
  double group_seconds = 0;                   // median of the rank's group, if ranks are split
};

struct BenchRank {
  RankSite site;
  std::vector<RankRow> rows;  // by result
};

// Bytes of the rank that holds the most at peak.
struct BenchMemory {
  double initial = 0;  // before the benchmark
  double buffers = 0;  // of the largest point: what a user would allocate
  double peak = 0;
};

struct BenchRun {
  std::vector<BenchResult> results;
  std::vector<std::string> skipped;  // "recursive_doubling: needs a power of two of ranks ..."
  LinkModel links;                   // for the closed forms
  std::string library;               // the library of the algorithm `vendor`, if there is one
  std::string skew;                  // in words, at the largest size; empty without skew
  std::vector<BenchRank> ranks;      // on rank 0, if every rank ran
  double cold_seconds = 0;           // of the first operation, if asked for
  BenchMemory memory;                // if asked for
  std::string split;                 // its name in results; empty: all ranks run one operation
  std::vector<std::vector<int>> groups;
  std::vector<std::string> devices;  // on rank 0, for nccl-tests' table: a line for each rank
};

bool has_wrong(const BenchRun& run);  // elements
// The mean over all results.
double average_busbw_gb_per_s(const BenchRun& run, Operation operation);
// Whether that mean is below nine tenths of options.table.least_busbw, as nccl-tests judges it.
bool is_too_slow(const BenchRun& run, Operation operation, const BenchOptions& options);

// Runs `program`, which calls bench_operation, on every rank; or, in virtual time, on one rank that
// stands in for all if ranks behave identically in an algorithm, and on one node if all nodes do
// (collectives/transport/launch/launch_symmetric.h). Other algorithms are measured before, on every
// rank, out-of-place and in-place at the same time. Every rank runs `program` if the number of ranks
// is not a power of two, if data, a trace or a fault is asked for, or, where ranks differ, the
// memory or the first operation; or if ranks behave identically in no algorithm and are fewer than
// 1,024. Sets options.running_ranks, measured and measures_more. Throws what launch() throws.
void launch_bench(const OperationEntry& entry, BenchOptions& options, const LaunchOptions& world,
                  const std::function<void(RankContext&)>& program);

// Measures an operation among the first `ranks` ranks of the world; the operation decides what any
// others do. Takes over the results of options.measured without measuring them again. Returns the
// same results on every rank. Rank 0 prints the table row by row.
BenchRun bench_operation(RankContext& context, const OperationEntry& entry, int ranks,
                         const BenchOptions& options, const LaunchOptions& world);

// The results as Google Benchmark's JSON, with the samples added to each entry.
std::string bench_json(const BenchRun& run, const OperationEntry& entry,
                       const BenchOptions& options, const LaunchOptions& world);

}  // namespace lockstep
