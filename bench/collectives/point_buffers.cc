#include "bench/collectives/point_buffers.h"

#include <algorithm>
#include <numeric>

#include "bench/collectives/verify.h"
#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

Slice like(DType dtype, Device* device) { return {.dtype = dtype, .device = device}; }

}  // namespace

PointBuffers::PointBuffers(const BenchGroups& groups, const OperationEntry& entry,
                           const BenchOptions& options, const PointSpec& spec)
    : groups_(groups),
      comm_(groups.mine()),
      entry_(entry),
      options_(options),
      problem_(spec.problem),
      op_(spec.op),
      is_scaled_(spec.is_scaled) {
  const Problem& problem = spec.problem;
  const DType dtype = spec.dtype;
  Count in = problem.count, out = problem.count;
  if (!problem.counts.empty()) {
    for (int other = 0; other < problem.ranks; ++other) {
      sent_.push_back(problem.counts(comm_.rank(), other));
      received_.push_back(problem.counts(other, comm_.rank()));
    }
    in = std::accumulate(sent_.begin(), sent_.end(), Count{0});
    out = std::accumulate(received_.begin(), received_.end(), Count{0});
  }
  const Count larger = std::max(in, out);  // the plain copy writes what the operation reads
  const Count offset = options.offset;
  input_memory_ = comm_.scratch(like(dtype, options.device), offset + in);
  output_memory_ = comm_.scratch(like(dtype, options.device), offset + larger);
  input_ = input_memory_.slice(offset + in, dtype).part(offset, in);
  output_ = output_memory_.slice(offset + larger, dtype).part(offset, out);
  if (options.device->enqueues()) staged_ = comm_.scratch(like(dtype, &host_device()), larger);
  reset();
}

Timed PointBuffers::timed(const AnyAlgorithm& algorithm, bool in_place) {
  return {.prepare = [this, in_place] { prepare(in_place); },
          .operation =
              [this, &algorithm, in_place] {
                for (int i = 0; i < options_.operations_per_iteration; ++i)
                  run(algorithm, in_place);
                if (options_.buffers == Buffers::consume) read(output_);
              },
          .elsewhere = {}};
}

Timed PointBuffers::timed_once(const AnyAlgorithm& algorithm) {
  return {
      .prepare = {}, .operation = [this, &algorithm] { run(algorithm, false); }, .elsewhere = {}};
}

Timed PointBuffers::timed_copy() {
  Slice copied = output_;  // its memory is at least as long as the input
  copied.count = input_.count;
  return {
      .prepare = {}, .operation = [this, copied] { comm_.copy(copied, input_); }, .elsewhere = {}};
}

double PointBuffers::wrong(const AnyAlgorithm& algorithm, bool in_place) {
  double most = 0;
  for (int round = 0; round < options_.checks; ++round)
    most = std::max(most, wrong_in(round, algorithm, in_place));
  return most;
}

double PointBuffers::wrong_in(int round, const AnyAlgorithm& algorithm, bool in_place) {
  reset(round);
  if (in_place) comm_.copy(output_, input_);
  run(algorithm, in_place);
  const Slice seen = staged(output_);
  if (seen.data != output_.data) comm_.copy(seen, output_);
  auto wrong = static_cast<double>(
      wrong_elements(seen, entry_, problem_, comm_.rank(), op_, round, is_scaled_));
  all_reduce(groups_.world(), host_slice(std::span(&wrong, 1)));
  return wrong;
}

void PointBuffers::reset(int round) {
  if (!options_.device->stores()) return;
  fill(round);
  output_.device->zero(output_);
}

// The host's copy of a slice whose device has its own memory; otherwise the slice itself.
Slice PointBuffers::staged(Slice slice) const {
  return staged_.data() ? staged_.slice(slice.count, slice.dtype) : slice;
}

void PointBuffers::fill(int round) {
  const Slice written = staged(input_);
  fill_input(written, entry_, problem_, comm_.rank(), op_, round);
  if (written.data != input_.data) comm_.copy(input_, written);
}

void PointBuffers::prepare(bool in_place) {
  if (options_.buffers == Buffers::hot) return;
  fill();
  if (in_place) comm_.copy(output_, input_);
}

// In-place, the output buffer also holds the input.
void PointBuffers::run(const AnyAlgorithm& algorithm, bool in_place) {
  if (is_scaled_) return run_scaled(algorithm, in_place);
  if (entry_.out_of_place && !in_place) {
    algorithm.run(comm_, input_,
                  {.op = op_,
                   .root = problem_.root,
                   .out = output_,
                   .counts = {.in = sent_, .out = received_}});
    return;
  }
  if (!in_place) copy_contribution();
  algorithm.run(comm_, output_, {.op = op_, .root = problem_.root});
}

void PointBuffers::run_scaled(const AnyAlgorithm& algorithm, bool in_place) {
  if (options_.device->stores())
    multiply(output_.first(input_.count), in_place ? output_ : input_, input_factor(comm_.rank()));
  algorithm.run(comm_, output_, {.op = op_, .root = problem_.root});
}

// Our algorithms are in-place: out-of-place, this rank's contribution is copied first.
void PointBuffers::copy_contribution() {
  const int rank = comm_.rank();
  switch (entry_.operation) {
    case Operation::all_gather:
    case Operation::gather:
      comm_.copy(Chunks(output_, problem_.ranks)[rank], Chunks(input_, problem_.ranks)[rank]);
      return;
    case Operation::broadcast:
    case Operation::scatter:
      if (rank == problem_.root) comm_.copy(output_, input_);
      return;
    default:
      comm_.copy(output_, input_);
  }
}

// Reads every cache line; the compiler must not optimise it away.
void PointBuffers::read(Slice data) {
  constexpr Count line = 64;
  int sum = 0;
  for (Count i = 0; i < data.bytes(); i += line) sum += static_cast<int>(data.data[i]);
  sink_ = sum;
}

}  // namespace lockstep
