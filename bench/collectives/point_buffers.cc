#include "bench/collectives/point_buffers.h"

#include <algorithm>
#include <numeric>

#include "bench/collectives/verify.h"

namespace lockstep {
namespace {

Slice like(DType dtype, Device* device) { return {.dtype = dtype, .device = device}; }

}  // namespace

PointBuffers::PointBuffers(Communicator& comm, const OperationEntry& entry,
                           const BenchOptions& options, const PointSpec& spec)
    : comm_(comm),
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
  const auto allocated = [&](Memory& memory, Count room, Count count) {
    memory = comm_.scratch(like(dtype, options.device), offset + room);
    return memory.slice(offset + room, dtype).part(offset, count);
  };
  input_ = allocated(input_memory_, in, in);
  output_ = allocated(output_memory_, larger, out);
  if (options.blocks.are_apart()) {
    const Count in_apart = options.blocks.spread(in), out_apart = options.blocks.spread(out);
    input_blocks_ = allocated(input_blocks_memory_, in_apart, in_apart);
    output_blocks_ = allocated(output_blocks_memory_, out_apart, out_apart);
  }
  if (options.device->enqueues()) staged_ = comm_.scratch(like(dtype, &host_device()), larger);
  reset(0);
}

void PointBuffers::run_iteration(const AnyAlgorithm& algorithm, bool in_place) {
  for (int i = 0; i < options_.operations_per_iteration; ++i) run(algorithm, in_place);
  if (options_.buffers == Buffers::consume)
    read(options_.blocks.are_apart() ? output_blocks_ : output_);
}

void PointBuffers::copy() {
  Slice copied = output_;  // its memory is at least as long as the input
  copied.count = input_.count;
  comm_.copy(copied, input_);
}

void PointBuffers::begin_check(int round, bool in_place) {
  reset(round);
  if (in_place) input_to_output();
}

Count PointBuffers::wrong(int round) {
  Count wrong = 0;
  if (options_.blocks.are_apart()) {
    output_.device->zero(output_);
    pack_blocks(output_, output_blocks_, options_.blocks);
    wrong = spoiled_gaps(output_blocks_, output_.count, options_.blocks);
  }
  const Slice seen = staged(output_);
  if (seen.data != output_.data) comm_.copy(seen, output_);
  return wrong + wrong_elements(seen, entry_, problem_, comm_.rank(), op_, round, is_scaled_);
}

std::int64_t PointBuffers::bytes() const {
  const bool apart = options_.blocks.are_apart();
  return apart ? input_blocks_.bytes() + output_blocks_.bytes() : input_.bytes() + output_.bytes();
}

void PointBuffers::reset(int round) {
  if (!options_.device->stores()) return;
  fill(round);
  output_.device->zero(output_);
  if (!options_.blocks.are_apart()) return;
  mark_gaps(output_blocks_);
  unpack_blocks(output_blocks_, output_, options_.blocks);
}

// The host's copy of a slice whose device has its own memory; otherwise the slice itself.
Slice PointBuffers::staged(Slice slice) const {
  return staged_.data() ? staged_.slice(slice.count, slice.dtype) : slice;
}

void PointBuffers::fill(int round) {
  const Slice written = staged(input_);
  fill_input(written, entry_, problem_, comm_.rank(), op_, round);
  if (written.data != input_.data) comm_.copy(input_, written);
  if (!options_.blocks.are_apart()) return;
  mark_gaps(input_blocks_);
  unpack_blocks(input_blocks_, input_, options_.blocks);
  input_.device->zero(input_);  // an operation must pack it again
}

// In-place, the output buffer also holds the input.
void PointBuffers::input_to_output() {
  if (options_.blocks.are_apart())
    comm_.copy(output_blocks_, input_blocks_);
  else
    comm_.copy(output_, input_);
}

void PointBuffers::prepare(bool in_place) {
  if (options_.buffers == Buffers::hot) return;
  fill();
  if (in_place) input_to_output();
}

// The algorithms take contiguous data, so others are packed first, and their result is unpacked.
void PointBuffers::run(const AnyAlgorithm& algorithm, bool in_place) {
  if (!options_.blocks.are_apart()) return run_packed(algorithm, in_place);
  if (in_place)
    pack_blocks(output_, output_blocks_, options_.blocks);
  else
    pack_blocks(input_, input_blocks_, options_.blocks);
  run_packed(algorithm, in_place);
  unpack_blocks(output_blocks_, output_, options_.blocks);
}

void PointBuffers::run_packed(const AnyAlgorithm& algorithm, bool in_place) {
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
