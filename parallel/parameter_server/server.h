// A server's end of a parameter server: keeps a part of the parameters, receives the workers'
// gradients for it, and sends it to them.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/communicator.h"
#include "parallel/plan/roles.h"

namespace lockstep {

// A worker's push, as received by a server.
struct Push {
  int worker = 0, step = 0;
  double gradient_norm = 0;  // norm of all gradients, not only of this part
  int lead = 0;              // steps the worker was ahead of the slowest
  int delay = 0;             // updates by others since the worker last pulled
};

class Server {
 public:
  // `parameters` and `gradients` are this server's parts. If the server shares its rank with a
  // worker, `gradients` begin as that worker's.
  Server(Communicator& comm, const Roles& roles, Slice parameters, Slice gradients)
      : comm_(comm),
        roles_(roles),
        parameters_(parameters),
        gradients_(gradients),
        exchanged_(static_cast<std::size_t>(roles.workers())) {}

  // Receives the parameters from `worker`.
  void take_parameters(int worker);
  // Synchronous: sums the gradients of all workers. Each server begins with a different worker, so
  // that not all of them wait for the same worker's egress.
  void collect();
  // Starts to send the parameters to every worker; finish() waits for it. They must not change in
  // between.
  void reply();
  void finish();

  // Asynchronous: receives `steps` pushes of every worker in order of arrival. Applies each on its
  // own, and answers when the worker is at most `most_lead` steps ahead of the slowest (Ho et al.,
  // "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013).
  // Continues without workers that fail, unless they are also servers; throws Error if any other
  // rank fails.
  static constexpr int unlimited = std::numeric_limits<int>::max();
  void serve(int steps, int most_lead, const std::function<void(const Push&)>& apply);
  bool lost_a_worker() const { return std::ranges::any_of(clients_, &Client::lost); }

 private:
  struct Client {
    int clock = 0;  // steps that it has pushed
    bool lost = false, owed = false;
    int updates_seen = 0;
    double norm = 0;
    Request norm_receive;
  };

  // Messages exchanged with a worker so far; this numbers its next one.
  struct Exchanged {
    std::int64_t pushes = 0, pulls = 0;
  };
  Exchanged& exchanged(int worker) { return exchanged_[static_cast<std::size_t>(worker)]; }
  // Calls use(worker) for every worker on another rank.
  template <typename Use>
  void for_workers(Use use) const;
  void send_to(int worker);
  void expect(int worker);
  void forget(int worker);
  std::optional<int> take_next();
  void note(int worker, const std::function<void(const Push&)>& apply);
  void finish_replies();
  void release(int most_lead);
  int slowest() const;
  // The worker that `error` reports as lost. Rethrows any other error.
  void lose(const Error& error);

  Communicator& comm_;
  Roles roles_;
  Slice parameters_, gradients_;
  std::vector<Exchanged> exchanged_;  // by worker
  std::vector<std::pair<int, Request>> replies_;
  std::vector<Client> clients_;  // by worker
  // Pending pushes, the oldest receive first, and their workers.
  std::vector<Request> receives_;
  std::vector<int> from_;
  int updates_ = 0;
};

}  // namespace lockstep
