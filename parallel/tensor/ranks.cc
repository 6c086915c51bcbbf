#include "parallel/tensor/ranks.h"

#include <vector>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

constexpr int tensor_track = 3;

}  // namespace

TensorRanks::TensorRanks(Communicator& comm, const LayerSplit& split, bool overlap, Ledger& ledger)
    : comm_(&comm), split_(split), overlap_(overlap), ledger_(&ledger), waiting_(comm) {
  if (overlap && !split.by_sequence) stream_.emplace(comm, tensor_track, "tensor");
}

// lab: own_rows
Slice TensorRanks::own_rows(Slice all) const {
  // lab: solution
  if (!split_.by_sequence) return all;
  const Slice own = Chunks(all, split_.ranks)[split_.rank];
  announce(Operation::scatter, all, own);
  return own;
  // lab: given
}
// lab: end

Slice TensorRanks::scratch(Use use, Count rows, Count columns, DType dtype) {
  Tensor& memory = scratch_[static_cast<std::size_t>(use)];
  if (memory.count() < rows * columns || memory.dtype() != dtype)
    ensure(memory, {rows * columns}, dtype, *ledger_, MemoryUse::communication);
  return memory.slice().first(rows * columns);
}

void TensorRanks::wait(const std::function<void()>& exchange) {
  if (!comm_) return;
  if (comm_->size() == 1) return exchange();
  const Trace::Span span(comm_->records().trace, 0, "wait for the other parts", "wait");
  waiting_->time(exchange);
}

void TensorRanks::set_label(const char* label) {
  if (comm_) comm_->set_label(label);
}

// lab: gather
void TensorRanks::gather(Slice all, const char* label) {
  set_label(label);
  // lab: solution
  wait([&] { all_gather(*comm_, all); });
  // lab: given
}
// lab: end

void TensorRanks::for_each_part(const OnPart& product) const {
  for (int part = 0; part < split_.ranks; ++part) product(part);
}

// A ring: multiplies the part that arrived last while it sends it on and receives the next.
void TensorRanks::gather_in_parts(Slice all, const char* label, const OnPart& product) {
  if (!comm_) return for_each_part(product);
  comm_->set_label(label);
  const Chunks part(all, comm_->size());
  for (int step = 0; step < comm_->size(); ++step) {
    const int here = comm_->rank() - step;
    Request arriving, leaving;
    if (step + 1 < comm_->size()) {
      arriving = comm_->irecv(part[here - 1], comm_->left(), messages_);
      leaving = comm_->isend(part[here], comm_->right(), messages_++);
    }
    // Again for each part: before it arrived, its memory was that of something else.
    announce(Operation::all_gather, own_rows(all), all);
    product((here + comm_->size()) % comm_->size());
    if (!arriving) continue;
    wait([&] {
      arriving->wait();
      leaving->wait();
    });
  }
}

// lab: sum
void TensorRanks::sum(Slice partial, const char* label) {
  set_label(label);
  // lab: solution
  wait([&] {
    if (split_.by_sequence)
      reduce_scatter(*comm_, partial);
    else
      all_reduce(*comm_, partial);
  });
  // lab: given
}
// lab: end

// A ring: sends the sum of one part while it computes the next part to arrive.
void TensorRanks::sum_in_parts(Slice partial, const char* label, const OnPart& product) {
  if (!comm_) return for_each_part(product);
  comm_->set_label(label);
  const Chunks part(partial, comm_->size());
  std::vector<Request> leaving;
  for (int step = 0; step < comm_->size(); ++step) {
    const int here = comm_->rank() - 1 - step;
    Request growing;
    if (step > 0)
      growing = comm_->irecv_reduce(part[here], comm_->left(), ReduceOp::sum, messages_ - 1);
    product((here + comm_->size()) % comm_->size());
    if (growing) wait([&] { growing->wait(); });
    if (step + 1 < comm_->size())
      leaving.push_back(comm_->isend(part[here], comm_->right(), messages_++));
  }
  wait([&] {
    for (const Request& request : leaving) request->wait();
  });
  announce(Operation::reduce_scatter, partial, own_rows(partial));
}

// lab: sum_meanwhile
void TensorRanks::sum(Slice partial, const char* label, const Meanwhile& meanwhile) {
  if (!stream_ || !meanwhile) {
    sum(partial, label);
    return run(meanwhile);
  }
  Stream::Handle sum = stream_->enqueue([&](Communicator& comm) {
    comm.set_label(label);
    all_reduce(comm, partial);
  });
  stream_->run_while(sum, meanwhile);
  wait([&] { sum.wait(); });
}
// lab: end

void TensorRanks::combine(Slice values, ReduceOp op) {
  set_label(loss_label);
  wait([&] { all_reduce(*comm_, values, op); });
}

}  // namespace lockstep
