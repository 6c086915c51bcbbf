// A program with a bug: rank 1 of 4 makes a mistake at operation #3. tests/cli/faults_test.py runs it
// on every transport and checks the errors of all ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_to_all_v/all_to_all_v.h"
#include "collectives/base/error.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

constexpr int culprit = 1, operations_before = 3, operations_after = 3;
constexpr Count few = 8, many = 1 << 20;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void sum(Communicator& comm, Count count = few, ReduceOp op = ReduceOp::sum) {
  std::vector<float> data(static_cast<std::size_t>(count), 1);
  all_reduce(comm, host_slice(std::span(data)), op);
}

void sum_of_integers(Communicator& comm) {
  std::vector<std::int32_t> data(few, 1);
  all_reduce(comm, host_slice(std::span(data)));
}

void spread(Communicator& comm, Count count = few, int root = 0) {
  std::vector<float> data(static_cast<std::size_t>(count), 1);
  broadcast(comm, host_slice(std::span(data)), root);
}

// All pairs exchange `count` elements, but the culprit sends `wrong` to the rank behind it.
void exchange(Communicator& comm, Count count, Count wrong) {
  std::vector<Count> in(static_cast<std::size_t>(comm.size()), count), out = in;
  if (comm.rank() == culprit) in[culprit + 1] = wrong;
  const auto elements = [](const std::vector<Count>& counts) {
    const Count sum = std::accumulate(counts.begin(), counts.end(), Count{0});
    return std::vector<float>(static_cast<std::size_t>(sum));
  };
  std::vector<float> sent = elements(in), received = elements(out);
  all_to_all_v(comm, host_slice(std::span(received)), host_slice(std::span(sent)),
               {.in = in, .out = out});
}

// What the correct ranks do at operation #3, and what the rank with the bug does.
struct Fault {
  std::function<void(Communicator&)> others, culprit;
};

const std::map<std::string, Fault>& faults() {
  const auto right = [](Communicator& comm) { sum(comm); };
  const auto in_order = [](Count count) {
    return [count](Communicator& comm) { sum(comm, count), spread(comm, count); };
  };
  const auto swapped = [](Count count) {
    return [count](Communicator& comm) { spread(comm, count), sum(comm, count); };
  };
  const auto pair = [](Count count, Count wrong) {
    const auto both = [=](Communicator& comm) { exchange(comm, count, wrong); };
    return Fault{both, both};
  };
  static const std::map<std::string, Fault> table = {
      {"kill", {right, [](Communicator&) { std::raise(SIGKILL); }}},
      {"exit0", {right, [](Communicator&) { _exit(0); }}},
      {"exit3", {right, [](Communicator&) { _exit(3); }}},
      {"throw", {right, [](Communicator&) { throw std::runtime_error("disk on fire"); }}},
      {"stop", {right, [](Communicator&) { std::raise(SIGSTOP); }}},
      {"count", {right, [](Communicator& comm) { sum(comm, few / 2); }}},
      {"count_large",
       {[](Communicator& comm) { sum(comm, many); },
        [](Communicator& comm) { sum(comm, many / 2); }}},
      {"dtype", {right, [](Communicator& comm) { sum_of_integers(comm); }}},
      {"op", {right, [](Communicator& comm) { sum(comm, few, ReduceOp::max); }}},
      {"root",
       {[](Communicator& comm) { spread(comm, few, 0); },
        [](Communicator& comm) { spread(comm, few, culprit); }}},
      {"order", {in_order(few), swapped(few)}},
      {"order_large", {in_order(many), swapped(many)}},
      {"skip", {[](Communicator& comm) { spread(comm), sum(comm); }, right}},
      {"pair", pair(few, few / 2)},
      {"pair_empty", pair(few, 0)},
      {"pair_large", pair(many / 4, many / 8)},
      // Simulates a stopped process if ranks are threads.
      {"absent",
       {right, [](Communicator&) { std::this_thread::sleep_for(std::chrono::seconds(4)); }}},
  };
  return table;
}

void run(Communicator& comm, const Fault& fault) {
  for (int i = 0; i < operations_before; ++i) sum(comm);
  if (comm.rank() != culprit) {
    fault.others(comm);
  } else {
    // By then the others are waiting, so each of them reports #3.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fmt::print(stderr, "fault time={:.6f} process={}\n", now_seconds(), getpid());
    fault.culprit(comm);
  }
  for (int i = 0; i < operations_after; ++i) sum(comm);
}

int main_of(const std::string& name, double timeout_s) {
  try {
    launch({.ranks = 4, .timeout_s = timeout_s, .flight = "flight.json"}, [&](RankContext& rank) {
      try {
        run(rank.world, faults().at(name));
      } catch (const Error& error) {
        const ErrorContext& c = error.context();
        fmt::print(stderr, "error rank={} failed={} sequence={} kind={} time={:.6f} in {}\n",
                   c.rank, c.failed_rank, c.sequence, name_of(error.kind()), now_seconds(),
                   c.operation);
        throw;
      }
    });
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_status();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 4;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 3) {
    for (const auto& [name, fault] : lockstep::faults()) fmt::print("{}\n", name);
    return 2;
  }
  return lockstep::main_of(argv[1], std::stod(argv[2]));
}
