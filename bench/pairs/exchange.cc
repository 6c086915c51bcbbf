#include "bench/pairs/exchange.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "collectives/base/device.h"

namespace lockstep {
namespace {

constexpr int ping_pongs = 10, small_window = 64;

void wait_all(std::vector<Request>& requests) {
  for (const Request& each : requests) each->wait();
  requests.clear();
}

std::vector<Request> sends(Communicator& comm, Slice data, int peer, int number) {
  std::vector<Request> started;
  for (int i = 0; i < number; ++i) started.push_back(comm.isend(data, peer));
  return started;
}

std::vector<Request> receives(Communicator& comm, Slice data, int peer, int number) {
  std::vector<Request> started;
  for (int i = 0; i < number; ++i) started.push_back(comm.irecv(data, peer));
  return started;
}

// The leader sends so many messages and gets an empty answer.
void stream(Communicator& comm, Slice out, Slice in, int peer, bool leads, int messages) {
  if (leads) {
    std::vector<Request> sending = sends(comm, out, peer, messages);
    wait_all(sending);
    comm.recv(in.first(0), peer);
  } else {
    std::vector<Request> receiving = receives(comm, in, peer, messages);
    wait_all(receiving);
    comm.send(out.first(0), peer);
  }
}

// Both send a window to each other, and do something meanwhile.
void cross(Communicator& comm, const LinkBuffers& buffers, int peer,
           const std::function<void()>& meanwhile = {}) {
  std::vector<Request> sending = sends(comm, buffers.large_out(), peer, buffers.window());
  std::vector<Request> receiving = receives(comm, buffers.large_in(), peer, buffers.window());
  if (meanwhile) meanwhile();
  wait_all(receiving);
  wait_all(sending);
}

// Computes for a time; a virtual clock moves on by it.
void compute(Communicator& comm, Clock clock, double seconds) {
  if (clock != Clock::wall) return comm.transport().advance(seconds);
  const double end = comm.transport().now_seconds() + seconds;
  volatile double value = 1;
  constexpr int between_looks = 1000;
  while (comm.transport().now_seconds() < end)
    for (int i = 0; i < between_looks; ++i) value = value * 0.999 + 0.001;
}

double time_of(Communicator& comm, const std::function<void()>& operation) {
  const double begin = comm.transport().now_seconds();
  operation();
  return comm.transport().now_seconds() - begin;
}

// Ranks are paired across the middle; a last one of an odd number has no peer.
struct Across {
  int pairs, number, peer;  // of all pairs, this rank's
  bool leads;

  explicit Across(const Communicator& comm)
      : pairs(comm.size() / 2),
        number(comm.rank() % pairs),
        peer(comm.rank() < pairs ? comm.rank() + pairs : comm.rank() - pairs),
        leads(comm.rank() < pairs) {
    if (comm.rank() >= 2 * pairs) number = -1;
  }
  // Of the pairs first .. first + count - 1.
  bool is_among(int first, int count) const { return number >= first && number < first + count; }
};

// In virtual time ranks without a part wait for the others: messages of the next barrier would take
// time on the links that are measured.
Timed timed_together(Communicator& comm, std::function<void()> operation) {
  return {.prepare = {},
          .operation =
              [&comm, operation = std::move(operation)] {
                operation();
                comm.transport().align();
              },
          .elsewhere = {}};
}

FabricTest crossing(Communicator& comm, const LinkBuffers& buffers, std::string name, int first,
                    int count, std::function<void()> meanwhile = {}) {
  const Across across(comm);
  const int messages = 2 * count * buffers.window();
  return {.name = std::move(name),
          .pairs = count,
          .bytes = static_cast<double>(buffers.large_out().bytes()) * messages,
          .messages = messages,
          .timed = timed_together(comm, [=, &comm, &buffers] {
            if (across.is_among(first, count))
              cross(comm, buffers, across.peer, meanwhile);
            else if (meanwhile)
              meanwhile();
          })};
}

FabricTest incast(Communicator& comm, const LinkBuffers& buffers) {
  const int others = comm.size() - 1;
  return {.name = "incast",
          .pairs = others,
          .bytes = static_cast<double>(buffers.large_out().bytes()) * others,
          .messages = others,
          .timed = timed_together(comm, [&comm, &buffers] {
            if (comm.rank() > 0) return comm.send(buffers.large_out(), 0);
            std::vector<Request> receiving;
            for (int rank = 1; rank < comm.size(); ++rank)
              receiving.push_back(comm.irecv(buffers.large_in(), rank));
            wait_all(receiving);
          })};
}

FabricTest message_rate(Communicator& comm, const LinkBuffers& buffers, int pairs) {
  const Across across(comm);
  const int messages = pairs * small_window;
  return {.name = "message_rate",
          .pairs = pairs,
          .bytes = static_cast<double>(buffers.small_out().bytes()) * messages,
          .messages = messages,
          .timed = timed_together(comm, [=, &comm, &buffers] {
            if (across.is_among(0, pairs))
              stream(comm, buffers.small_out(), buffers.small_in(), across.peer, across.leads,
                     small_window);
          })};
}

}  // namespace

LinkBuffers::LinkBuffers(Communicator& comm, Device& device, Count small, Count large, int window)
    : small_(small), large_(large), window_(window) {
  const Slice like{.dtype = DType::u8, .device = &device};
  const Count bytes = std::max(small, large);
  out_ = comm.scratch(like, bytes);
  in_ = comm.scratch(like, bytes);
  device.zero(out_.slice(bytes, DType::u8));
  device.zero(in_.slice(bytes, DType::u8));
}

void meet(Communicator& comm, const LinkBuffers& buffers, int peer, bool leads) {
  const Slice nothing = buffers.small_in().first(0);
  if (leads) comm.send(nothing, peer);
  comm.recv(nothing, peer);
  if (!leads) comm.send(nothing, peer);
}

double ping_pong_seconds(Communicator& comm, const LinkBuffers& buffers, int peer, bool leads) {
  const double seconds = time_of(comm, [&] {
    for (int i = 0; i < ping_pongs; ++i) {
      if (leads) comm.send(buffers.small_out(), peer);
      comm.recv(buffers.small_in(), peer);
      if (!leads) comm.send(buffers.small_out(), peer);
    }
  });
  return seconds / (2 * ping_pongs);
}

double one_way_seconds(Communicator& comm, const LinkBuffers& buffers, int peer, bool leads) {
  return time_of(comm, [&] {
    stream(comm, buffers.large_out(), buffers.large_in(), peer, leads, buffers.window());
  });
}

double both_ways_seconds(Communicator& comm, const LinkBuffers& buffers, int peer) {
  return time_of(comm, [&] { cross(comm, buffers, peer); });
}

std::vector<FabricTest> fabric_tests(Communicator& comm, const LinkBuffers& buffers) {
  const int pairs = Across(comm).pairs;
  std::vector<FabricTest> tests;
  tests.push_back(crossing(comm, buffers, "bisection_at_once", 0, pairs));
  for (int pair = 0; pair < pairs; ++pair)
    tests.push_back(crossing(comm, buffers, "bisection_alone", pair, 1));
  tests.push_back(incast(comm, buffers));
  for (int count = 1; count < pairs; count *= 2)
    tests.push_back(message_rate(comm, buffers, count));
  tests.push_back(message_rate(comm, buffers, pairs));
  return tests;
}

FabricTest overlap_test(Communicator& comm, const LinkBuffers& buffers, Clock clock,
                        double computing) {
  return crossing(comm, buffers, "overlap", 0, Across(comm).pairs,
                  [&comm, clock, computing] { compute(comm, clock, computing); });
}

}  // namespace lockstep
