#include "parallel/parameter_server/server.h"

#include <algorithm>

namespace lockstep {

// lab: for_workers
template <typename Use>
void Server::for_workers(Use use) const {
  // lab: solution
  const int first = roles_.first_worker(roles_.server_of_rank(comm_.rank()));
  for (int i = 0; i < roles_.workers(); ++i)
    if (const int worker = (first + i) % roles_.workers(); worker != comm_.rank()) use(worker);
  // lab: given
}
// lab: end

void Server::take_parameters(int worker) {
  comm_.set_label("push");
  if (comm_.rank() != worker) comm_.recv(parameters_, worker, exchanged(worker).pushes);
  ++exchanged(worker).pushes;
}

// lab: collect
void Server::collect() {
  comm_.set_label("push");
  // lab: solution
  bool empty = !roles_.colocated;
  for_workers([&](int worker) {
    const std::int64_t number = exchanged(worker).pushes++;
    if (std::exchange(empty, false))
      comm_.recv(gradients_, worker, number);
    else
      comm_.recv_reduce(gradients_, worker, ReduceOp::sum, number);
  });
  // lab: given
}

void Server::reply() {
  // lab: solution
  for_workers([&](int worker) { send_to(worker); });
  // lab: given
}

void Server::finish() {
  while (!replies_.empty()) {
    const Request reply = std::move(replies_.back().second);
    replies_.pop_back();
    reply->wait();
  }
}
// lab: end

void Server::serve(int steps, int most_lead, const std::function<void(const Push&)>& apply) {
  clients_ = std::vector<Client>(static_cast<std::size_t>(roles_.workers()));
  for (int worker = 0; worker < roles_.workers(); ++worker) expect(worker);
  while (!from_.empty()) {
    if (const std::optional<int> worker = take_next()) {
      // The replies read the parameters, which are about to change.
      finish_replies();
      note(*worker, apply);
      if (clients_[static_cast<std::size_t>(*worker)].clock < steps) expect(*worker);
    }
    release(most_lead);
  }
  finish_replies();
}

// The worker whose gradients have arrived; empty if a worker was lost instead.
std::optional<int> Server::take_next() {
  try {
    const std::size_t place = comm_.wait_any(receives_, from_);
    const int worker = from_[place];
    const Request gradients = std::move(receives_[place]);
    forget(worker);
    clients_[static_cast<std::size_t>(worker)].norm_receive->wait();
    gradients->wait();
    return worker;
  } catch (const Error& error) {
    lose(error);
    return {};
  }
}

void Server::finish_replies() {
  while (!replies_.empty()) {
    try {
      finish();
    } catch (const Error& error) {
      lose(error);
    }
  }
}

void Server::note(int worker, const std::function<void(const Push&)>& apply) {
  Client& client = clients_[static_cast<std::size_t>(worker)];
  apply({.worker = worker,
         .step = client.clock,
         .gradient_norm = client.norm,
         .lead = client.clock - slowest(),
         .delay = updates_ - client.updates_seen});
  ++updates_;
  ++client.clock;
  client.owed = true;
}

void Server::release(int most_lead) {
  const int least = slowest();
  for (int worker = 0; worker < roles_.workers(); ++worker) {
    Client& client = clients_[static_cast<std::size_t>(worker)];
    if (client.lost || !client.owed || client.clock - least > most_lead) continue;
    client.owed = false;
    client.updates_seen = updates_;
    send_to(worker);
  }
}

void Server::lose(const Error& error) {
  const int worker = error.context().failed_rank;
  const bool is_client =
      worker >= 0 && worker < roles_.workers() && !clients_[static_cast<std::size_t>(worker)].lost;
  if (error.kind() != ErrorKind::lost_rank || !is_client || roles_.colocated) throw;
  clients_[static_cast<std::size_t>(worker)].lost = true;
  forget(worker);
  std::erase_if(replies_, [&](const auto& reply) { return reply.first == worker; });
}

int Server::slowest() const {
  int least = unlimited;
  for (const Client& client : clients_)
    if (!client.lost) least = std::min(least, client.clock);
  return least;
}

// lab: send_to
void Server::send_to(int worker) {
  comm_.set_label("pull");
  replies_.emplace_back(worker, comm_.isend(parameters_, worker, exchanged(worker).pulls++));
}
// lab: end

// All pushes use the same memory: a receive writes to it only in its wait().
void Server::expect(int worker) {
  comm_.set_label("push");
  Client& client = clients_[static_cast<std::size_t>(worker)];
  const std::int64_t number = exchanged(worker).pushes++;
  client.norm_receive = comm_.irecv(host_slice(std::span(&client.norm, 1)), worker, number);
  receives_.push_back(comm_.irecv(gradients_, worker, number));
  from_.push_back(worker);
}

void Server::forget(int worker) {
  const auto place = std::ranges::find(from_, worker) - from_.begin();
  if (place == std::ssize(from_)) return;
  receives_.erase(receives_.begin() + place);
  from_.erase(from_.begin() + place);
}

}  // namespace lockstep
