#include "collectives/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <vector>

#include "collectives/base/error.h"

namespace lockstep {

Communicator::Communicator(std::unique_ptr<Transport> transport, RankRecords records, int track)
    : transport_(std::move(transport)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      records_(records),
      track_(track) {}

namespace {

void copy_name(std::string_view name, Signature& signature) {
  std::copy_n(name.begin(), std::min(name.size(), signature.algorithm.size() - 1),
              signature.algorithm.begin());
}

}  // namespace

Call Communicator::message_call(Slice data, std::int64_t number) const {
  if (in_collective_) return call_;
  Call call;
  call.signature.count = data.count;
  call.signature.dtype = data.dtype;
  call.label = label_.empty() ? name_of(Operation::send_recv) : std::string_view(label_);
  if (number >= 0) {
    call.signature.root = static_cast<std::int32_t>(number & std::numeric_limits<int>::max());
    copy_name(call.label, call.signature);
  }
  return call;
}

void Communicator::check_peer(int peer) const {
  if (peer >= 0 && peer < size()) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("rank {} exchanges a message with rank {}", rank(), peer),
              {.hint = fmt::format("ranks of this communicator are 0 to {}", size() - 1)});
}

Request Communicator::isend(Slice data, int to, std::int64_t number) {
  check_peer(to);
  return transport_->isend(message_call(data, number), data, to);
}

Request Communicator::irecv(Slice data, int from, std::int64_t number) {
  check_peer(from);
  return transport_->irecv(message_call(data, number), data, from);
}

Request Communicator::irecv_reduce(Slice growing, int from, ReduceOp op, std::int64_t number) {
  check_peer(from);
  return transport_->irecv_reduce(message_call(growing, number), growing, from, op);
}

void Communicator::send_recv(Slice leaving, int to, Slice arriving, int from) {
  check_peer(to);
  check_peer(from);
  if (in_collective_) return transport_->send_recv(call_, leaving, to, arriving, from);
  // Outside a collective the two messages may have different sizes.
  const Request sending = isend(leaving, to);
  irecv(arriving, from)->wait();
  sending->wait();
}

void Communicator::send_recv_reduce(Slice leaving, int to, Slice growing, int from, ReduceOp op) {
  check_peer(to);
  check_peer(from);
  if (in_collective_) return transport_->send_recv_reduce(call_, leaving, to, growing, from, op);
  const Request sending = isend(leaving, to);
  irecv_reduce(growing, from, op)->wait();
  sending->wait();
}

Memory Communicator::scratch(Slice like, Count count) {
  return Memory(*like.device, records_.ledger, MemoryUse::communication,
                count * element_bytes(like.dtype));
}

namespace {

// A thread whose work on the device starts after the creator's and ends before the joiner's.
class BackgroundThread final : public Concurrency::Task {
 public:
  BackgroundThread(Concurrency& concurrency, Device* device, std::function<void()> body)
      : task_(concurrency.start([this, device, before = record_on(device), body = std::move(body)] {
          before.stream_wait();
          body();
          end_ = record_on(device);
        })) {}
  ~BackgroundThread() override {
    task_.reset();
    try {
      end_.stream_wait();
    } catch (...) {
      // A failed device does no more work.
    }
  }

 private:
  DeviceEvent end_;
  std::unique_ptr<Concurrency::Task> task_;
};

}  // namespace

std::unique_ptr<Concurrency::Task> Communicator::start_thread(std::function<void()> body) {
  Device* const device = records_.ledger ? records_.ledger->device() : nullptr;
  return std::make_unique<BackgroundThread>(transport_->concurrency(), device, std::move(body));
}

Communicator Communicator::duplicate(int track) {
  std::vector<int> everyone(static_cast<std::size_t>(size()));
  for (int i = 0; i < size(); ++i) everyone[i] = i;
  return Communicator(made_group(everyone), records_, track);
}

std::array<Communicator, 2> Communicator::two_ends(int track) {
  TwoEnds ends = transport_->two_ends();
  return {Communicator(std::move(ends[0]), records_, track),
          Communicator(std::move(ends[1]), records_, track + 1)};
}

std::unique_ptr<Transport> Communicator::made_group(std::span<const int> members) {
  auto transport = transport_->subgroup(members);
  if (records_.observer) records_.observer->made_group(group(), members, transport.get());
  return transport;
}

std::unique_ptr<Communicator> Communicator::subgroup(std::span<const int> members) {
  return std::make_unique<Communicator>(made_group(members), records_, track_);
}

CollectiveCall::CollectiveCall(Communicator& comm, Operation operation, std::string_view algorithm,
                               Slice data, ReduceOp op, int root)
    : comm_(comm),
      span_(
          comm.records_.trace, comm.track_,
          comm.records_.trace ? fmt::format("{}/{}", name_of(operation), algorithm) : std::string(),
          "communication", data.bytes()) {
  require(!comm.in_collective_,
          "a collective was called inside another one on the same communicator");
  Signature& signature = comm.call_.signature;
  signature = {.sequence = comm.next_sequence_++,
               .count = data.count,
               .root = root,
               .operation = operation,
               .dtype = data.dtype,
               .op = op};
  copy_name(algorithm, signature);
  comm.call_.label = comm.label_.empty() ? name_of(operation) : std::string_view(comm.label_);
  comm.transport_->enter(comm.call_);
  comm.in_collective_ = true;
  if (comm.records_.observer) comm.records_.observer->begin(comm.group(), operation, data);
}

CollectiveCall::~CollectiveCall() {
  comm_.in_collective_ = false;
  if (comm_.records_.observer) comm_.records_.observer->end();
  // After a failure the entry stays on the board for other ranks to see.
  if (std::uncaught_exceptions() == 0) comm_.transport_->leave();
}

}  // namespace lockstep
