// A rank's service thread: answers requests for exposed data, and regularly checks for failures.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/transport/nccl/ask.h"
#include "collectives/transport/nccl/rank.h"

namespace lockstep {

void NcclRank::serve() try {
  use_gpu();
  std::vector<Ask> asks(static_cast<std::size_t>(size_));
  std::vector<Request> arriving;
  const auto expect_from = [&](int from) {
    return ends_[1]->irecv(asking(sizeof(Ask)), bytes_of(asks[static_cast<std::size_t>(from)]),
                           from);
  };
  for (int from = 0; from < size_; ++from) arriving.push_back(expect_from(from));

  constexpr double between_looks_s = 0.05, awake_s = 200e-6, longest_nap_s = 1e-3;
  double last_ask = steady_seconds(), last_look = last_ask;
  while (!ends_service_) {
    for (int from = 0; from < size_; ++from) {
      Request& request = arriving[static_cast<std::size_t>(from)];
      if (!request->arrives_at()) continue;
      request->wait();
      answer(from, asks[static_cast<std::size_t>(from)]);
      request = expect_from(from);
      last_ask = steady_seconds();
    }
    const double now = steady_seconds();
    if (now - last_look > between_looks_s) {
      look();
      last_look = now;
    }
    // The longer there was no request, the longer it may sleep.
    const double idle_s = now - last_ask;
    if (idle_s < awake_s)
      std::this_thread::yield();
    else
      sleep_for(std::min(idle_s / 10, longest_nap_s));
  }
} catch (const Error& error) {
  fail(error);
} catch (const std::exception& error) {
  fail(Error(ErrorKind::lost_rank, error.what(), failure_.context("")));
}

void NcclRank::answer(int to, const Ask& ask) {
  const auto exposed = claim(ask.number);
  if (exposed->data.device->enqueues()) {
    send_from_gpu(to, ask, *exposed);
  } else {
    const Slice bytes{exposed->data.data, exposed->data.bytes(), DType::u8, &host_device()};
    ends_[1]->isend(call_of(bytes.count), bytes, to)->wait();
  }
  const std::lock_guard lock(mutex_);
  exposed->answered = true;
  answered_.notify_all();
}

void NcclRank::send_from_gpu(int to, const Ask& ask, ExposedData& exposed) {
  Channel& channel = to_[static_cast<std::size_t>(to)];
  if (ask.connects != 0) {
    channel.comm = make_comm(ask.id, 2, 0);
    channel.stream.emplace();
  }
  // One stream per receiver: behind a message to another receiver, this message could block for
  // ever.
  const cudaStream_t stream = channel.stream->get();
  exposed.written.stream_wait(stream);
  const Slice& data = exposed.data;
  channel.comm->call("send", [&](ncclComm_t comm) {
    return ncclSend(data.data, static_cast<std::size_t>(data.bytes()), ncclInt8, 1, comm, stream);
  });
  exposed.read.record(stream);
  expect_end(stream, fmt::format("a message of {} bytes to rank {}", data.bytes(), to));
}

void NcclRank::look() {
  // Throws if another rank has failed.
  const Call call = asking(sizeof(Ask));
  ends_[1]->enter(call);
  ends_[1]->leave();
  look_at_comms();
  look_at_expected();
}

void NcclRank::look_at_comms() {
  std::vector<std::shared_ptr<NcclComm>> comms;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& comm : comms_)
      if (auto alive = comm.lock()) comms.push_back(std::move(alive));
  }
  for (const auto& comm : comms) check_nccl(failure_, comm->state(), "continue enqueued work");
}

void NcclRank::look_at_expected() {
  const std::lock_guard lock(mutex_);
  const double now = running_.look();
  std::erase_if(expected_, [](const Expected& each) { return each.event.has_happened(); });
  for (const Expected& each : expected_)
    if (now > each.deadline)
      throw Error(ErrorKind::timeout,
                  fmt::format("timed out: {} was enqueued {} s ago and is not finished", each.what,
                              failure_.timeout_s()),
                  failure_.context("raise --timeout if the GPUs are only slow"));
}

// Aborts hanging work on the GPU, so that threads that wait for it continue and learn the reason.
void NcclRank::fail(const Error& error) {
  failure_.set(error);
  if (!ends_service_) ends_[1]->abandon();
  std::vector<std::shared_ptr<NcclComm>> comms;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& comm : comms_)
      if (auto alive = comm.lock()) comms.push_back(std::move(alive));
  }
  for (const auto& comm : comms) comm->abort();
  answered_.notify_all();
}

}  // namespace lockstep
