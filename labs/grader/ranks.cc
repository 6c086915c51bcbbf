#include "labs/grader/ranks.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <ranges>

#include "collectives/base/checksum.h"
#include "labs/grader/rank_process.h"

namespace lockstep {
namespace {

// Limits of one rank.
constexpr std::int64_t most_messages = 10'000, most_sent_bytes = std::int64_t{1} << 26;
constexpr int patience_ms = 1000;

class World {
 public:
  World(const std::string& program, const std::string& library, const WorldOptions& options) {
    const int ranks = options.job.is_alone() ? 1 : options.job.ranks;
    run_.ranks.resize(static_cast<std::size_t>(ranks));
    states_.resize(run_.ranks.size());
    for (int rank = 0; rank < ranks; ++rank) {
      LabJob job = options.job;
      if (!job.is_alone()) job.rank = rank;
      if (!options.memory_limits.empty())
        job.memory_bytes = options.memory_limits[static_cast<std::size_t>(rank)];
      processes_.push_back(std::make_unique<RankProcess>(program, library));
      std::vector<std::byte> content(sizeof job);
      std::memcpy(content.data(), &job, sizeof job);
      if (!options.inputs.empty()) {
        const std::vector<std::byte>& input = options.inputs[static_cast<std::size_t>(rank)];
        content.insert(content.end(), input.begin(), input.end());
      }
      processes_.back()->write({.kind = Frame::Kind::job}, content.data(), std::ssize(content));
    }
  }

  // If several ranks fail, the result is the fault of the lowest of them, whichever failed earlier.
  WorldRun run() {
    while (run_.fault.empty() && !all_done()) {
      serve();
      find_deadlock();
    }
    for (const State& state : std::ranges::reverse_view(states_))
      if (!state.fault.empty()) run_.fault = state.fault, run_.is_deadlock = false;
    return std::move(run_);
  }

 private:
  using Route = std::pair<int, std::uint64_t>;  // the other rank, and the group

  struct State {
    bool is_done = false;
    std::string fault;
    std::optional<Frame> want;
    std::map<Route, std::map<std::int64_t, std::vector<std::byte>>> arrived;  // by sender, number
    std::map<Route, std::int64_t> sent;                                       // by receiver
    std::int64_t sent_bytes = 0;
  };

  bool all_done() const { return std::ranges::all_of(states_, &State::is_done); }

  bool all_asleep() const {
    for (std::size_t rank = 0; rank < states_.size(); ++rank)
      if (!states_[rank].is_done && !processes_[rank]->is_asleep()) return false;
    return true;
  }

  void serve() {
    std::vector<pollfd> sockets;
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      const short events = processes_[rank]->has_output() ? POLLIN | POLLOUT : POLLIN;
      sockets.push_back({.fd = states_[rank].is_done ? -1 : processes_[rank]->socket(),
                         .events = events,
                         .revents = 0});
    }
    const int ready = poll(sockets.data(), sockets.size(), patience_ms);
    if (ready == 0 && all_asleep()) {
      run_.fault = "no rank computes, sends or ends";
      run_.is_endless = true;
    }
    for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
      if ((sockets[rank].revents & POLLOUT) != 0) processes_[rank]->flush();
      if ((sockets[rank].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        listen(static_cast<int>(rank));
    }
  }

  void listen(int rank) {
    RankProcess& process = *processes_[static_cast<std::size_t>(rank)];
    const bool continues = process.fill();
    std::vector<std::byte> content;
    while (const std::optional<Frame> frame = process.next(content)) {
      take(rank, *frame, content);
      if (state(rank).is_done) return;
    }
    if (continues) return;
    const RankProcess::End end = process.wait();
    if (end.is_time_limit) run_.is_endless = true;
    fail(rank, end.text);
  }

  void take(int rank, const Frame& frame, std::vector<std::byte>& content) {
    switch (frame.kind) {
      case Frame::Kind::ready:
        return start(rank);
      case Frame::Kind::send:
        return post(rank, frame, content);
      case Frame::Kind::want:
        state(rank).want = frame;
        return deliver(rank);
      case Frame::Kind::result:
        run_.ranks[static_cast<std::size_t>(rank)].output = std::move(content);
        run_.ranks[static_cast<std::size_t>(rank)].grown_bytes = frame.number;
        state(rank).is_done = true;
        return;
      case Frame::Kind::fault:
        return fail(rank, "failed: " + std::string(reinterpret_cast<const char*>(content.data()),
                                                   std::min<std::size_t>(content.size(), 1000)));
      default:
        return fail(rank, "has written to the grader's socket");
    }
  }

  void start(int rank) {
    RankProcess& process = *processes_[static_cast<std::size_t>(rank)];
    run_.ranks[static_cast<std::size_t>(rank)].memory_bytes = process.memory_bytes();
    process.write({.kind = Frame::Kind::go}, nullptr, 0);
    process.flush();
  }

  void post(int from, const Frame& frame, std::vector<std::byte>& content) {
    const int to = frame.peer;
    std::vector<SentMessage>& sent = run_.ranks[static_cast<std::size_t>(from)].sent;
    if (to < 0 || to >= std::ssize(processes_))
      return fail(from, fmt::format("sends to rank {}, which does not exist", to));
    sent.push_back(
        {.to = to,
         .bytes = std::ssize(content),
         .checksum = checksum({reinterpret_cast<const char*>(content.data()), content.size()}),
         .label =
             std::string(frame.label.data(), strnlen(frame.label.data(), frame.label.size()))});
    state(from).sent_bytes += std::ssize(content);
    if (std::ssize(sent) > most_messages || state(from).sent_bytes > most_sent_bytes) {
      run_.is_endless = true;
      return fail(from, "sends without end");
    }
    state(to).arrived[{from, frame.group}][state(from).sent[{to, frame.group}]++] =
        std::move(content);
    deliver(to);
  }

  void deliver(int rank) {
    State& waiting = state(rank);
    if (!waiting.want) return;
    auto& messages = waiting.arrived[{waiting.want->peer, waiting.want->group}];
    const auto found = messages.find(waiting.want->number);
    if (found == messages.end()) return;
    RankProcess& process = *processes_[static_cast<std::size_t>(rank)];
    process.write({.kind = Frame::Kind::message, .peer = waiting.want->peer}, found->second.data(),
                  std::ssize(found->second));
    process.flush();
    messages.erase(found);
    waiting.want.reset();
  }

  // A waiting rank sends nothing more, so this needs no clock.
  void find_deadlock() {
    if (all_done()) return;
    std::string who;
    for (int rank = 0; rank < std::ssize(states_); ++rank) {
      if (state(rank).is_done) continue;
      if (!state(rank).want) return;
      who += fmt::format("{}rank {} waits for message {} of rank {}{}", who.empty() ? "" : ", ",
                         rank, state(rank).want->number, state(rank).want->peer,
                         state_text(state(rank).want->peer));
    }
    run_.fault = fmt::format("no rank can continue: {}", who);
    run_.is_deadlock = true;
  }
  std::string state_text(int rank) const {
    const bool is_done =
        rank >= 0 && rank < std::ssize(states_) && states_[static_cast<std::size_t>(rank)].is_done;
    return is_done ? ", which has ended" : "";
  }

  void fail(int rank, const std::string& what) {
    state(rank).fault = fmt::format("rank {} {}", rank, what);
    state(rank).is_done = true;
    processes_[static_cast<std::size_t>(rank)]->end();
  }
  State& state(int rank) { return states_[static_cast<std::size_t>(rank)]; }

  std::vector<std::unique_ptr<RankProcess>> processes_;
  std::vector<State> states_;
  WorldRun run_;
};

}  // namespace

std::int64_t RankRun::sent_bytes() const {
  return std::accumulate(
      sent.begin(), sent.end(), std::int64_t{0},
      [](std::int64_t sum, const SentMessage& message) { return sum + message.bytes; });
}

// The program of a lab whose code calls all of Lockstep has its number: it lacks that lab's solution.
Runner::Runner(const Lab& lab, std::string library)
    : program_(std::filesystem::read_symlink("/proc/self/exe").parent_path() /
               (lab.has_own_process() ? fmt::format("lockstep_lab_process_{}", lab.number)
                                      : "lockstep_lab_process")),
      library_(std::move(library)) {}

WorldRun Runner::run(const WorldOptions& options) {
  if (!endless_.empty()) {
    const int ranks = options.job.is_alone() ? 1 : options.job.ranks;
    return {.ranks = std::vector<RankRun>(static_cast<std::size_t>(ranks)),
            .fault = "not run: " + endless_};
  }
  WorldRun run = World(program_, library_, options).run();
  if (run.is_endless) endless_ = run.fault;
  return run;
}

}  // namespace lockstep
