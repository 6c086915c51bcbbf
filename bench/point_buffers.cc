#include "bench/point_buffers.h"

#include <cstring>

#include "bench/verify.h"
#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

Slice like(DType dtype, const BenchOptions& options) {
  return {.dtype = dtype, .device = options.stores_data ? &host_device() : &none_device()};
}

}  // namespace

PointBuffers::PointBuffers(Communicator& comm, const OperationEntry& entry,
                           const BenchOptions& options, const Problem& problem, DType dtype,
                           ReduceOp op)
    : comm_(comm),
      entry_(entry),
      options_(options),
      problem_(problem),
      op_(op),
      input_memory_(comm.scratch(like(dtype, options), problem.count)),
      output_memory_(comm.scratch(like(dtype, options), problem.count)),
      input_(input_memory_.slice(problem.count, dtype)),
      output_(output_memory_.slice(problem.count, dtype)) {
  begin_anew();
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

Timed PointBuffers::timed_copy() {
  return {.prepare = {}, .operation = [this] { comm_.copy(output_, input_); }, .elsewhere = {}};
}

double PointBuffers::wrong(const AnyAlgorithm& algorithm, bool in_place) {
  begin_anew();
  if (in_place) comm_.copy(output_, input_);
  run(algorithm, in_place);
  auto wrong = static_cast<double>(wrong_elements(output_, entry_, problem_, comm_.rank(), op_));
  all_reduce(comm_, host_slice(std::span(&wrong, 1)));
  return wrong;
}

void PointBuffers::begin_anew() {
  if (!options_.stores_data) return;
  fill_input(input_, entry_, problem_, comm_.rank(), op_);
  std::memset(output_.data, 0, static_cast<std::size_t>(output_.bytes()));
}

void PointBuffers::prepare(bool in_place) {
  if (options_.buffers == Buffers::hot) return;
  fill_input(input_, entry_, problem_, comm_.rank(), op_);
  if (in_place) comm_.copy(output_, input_);
}

// In place, the input lies where the output will.
void PointBuffers::run(const AnyAlgorithm& algorithm, bool in_place) {
  if (entry_.out_of_place && !in_place) {
    algorithm.run(comm_, input_, {.op = op_, .root = problem_.root, .out = output_});
    return;
  }
  if (!in_place) copy_what_it_takes();
  algorithm.run(comm_, output_, {.op = op_, .root = problem_.root});
}

// Our algorithms work in place: out of place, what this rank brings is copied first.
void PointBuffers::copy_what_it_takes() {
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

// Reads every cache line, and keeps the compiler from leaving it out.
void PointBuffers::read(Slice data) {
  constexpr Count line = 64;
  for (Count i = 0; i < data.bytes(); i += line) sink_ = sink_ + static_cast<int>(data.data[i]);
}

}  // namespace lockstep
