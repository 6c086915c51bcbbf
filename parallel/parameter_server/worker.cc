#include "parallel/parameter_server/worker.h"

#include "collectives/base/error.h"

namespace lockstep {

// lab: push
template <typename Use>
void Worker::for_servers(Use use) const {
  // lab: solution
  const int first = roles_.first_server(comm_.rank());
  for (int i = 0; i < roles_.servers; ++i) {
    const int server = (first + i) % roles_.servers, rank = roles_.rank_of_server(server);
    if (rank != comm_.rank()) use(server, rank);
  }
  // lab: given
}

void Worker::push(Slice gradients, std::optional<double> norm) {
  const Chunks part(gradients, roles_.servers);
  comm_.set_label("push");
  norm_ = norm.value_or(0);
  // lab: solution
  for_servers([&](int server, int rank) {
    if (norm) sends_.push_back(comm_.isend(host_slice(std::span(&norm_, 1)), rank, pushes_));
    sends_.push_back(comm_.isend(part[server], rank, pushes_));
  });
  // lab: given
  ++pushes_;
}
// lab: end

std::size_t Worker::wait_any(std::span<const Request> receives, std::span<const int> from,
                             int deadlines) {
  for (int missed = 1;; ++missed) {
    try {
      return comm_.wait_any(receives, from);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout || missed == deadlines) throw;
    }
  }
}

// lab: pull
void Worker::pull(Slice parameters) {
  const Chunks part(parameters, roles_.servers);
  comm_.set_label("pull");
  // lab: solution
  for_servers([&](int server, int rank) { comm_.recv(part[server], rank, pulls_); });
  // lab: given
  ++pulls_;
  finish_push();
}
// lab: end

void Worker::pull_any(Slice parameters, int deadlines) {
  const Chunks part(parameters, roles_.servers);
  comm_.set_label("pull");
  std::vector<Request> receives;
  std::vector<int> from;
  for_servers([&](int server, int rank) {
    receives.push_back(comm_.irecv(part[server], rank, pulls_));
    from.push_back(rank);
  });
  ++pulls_;
  while (!receives.empty()) {
    const auto place = static_cast<std::ptrdiff_t>(wait_any(receives, from, deadlines));
    receives[static_cast<std::size_t>(place)]->wait();
    receives.erase(receives.begin() + place);
    from.erase(from.begin() + place);
  }
  finish_push();
}

// lab: finish_push
void Worker::finish_push() {
  for (const Request& send : sends_) send->wait();
  sends_.clear();
}
// lab: end

}  // namespace lockstep
