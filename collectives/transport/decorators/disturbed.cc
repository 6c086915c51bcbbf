#include "collectives/transport/decorators/disturbed.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <thread>

#include "collectives/base/checksum.h"
#include "collectives/base/device.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

std::uint64_t checksum_of(Slice data) {
  return checksum({reinterpret_cast<const char*>(data.data),  // NOLINT(*-reinterpret-cast)
                   static_cast<std::size_t>(data.bytes())});
}

class CheckedSend final : public Transfer {
 public:
  CheckedSend(Request inner, const Call& call, Slice data, int from, int to)
      : inner_(std::move(inner)),
        signature_(call.signature),
        data_(data),
        from_(from),
        to_(to),
        checksum_(checksum_of(data)) {}

  void wait() override {
    inner_->wait();
    require_unchanged(checksum_of(data_) == checksum_);
  }
  std::optional<double> arrives_at() override { return inner_->arrives_at(); }

 private:
  void require_unchanged(bool is_unchanged) const {
    if (is_unchanged) return;
    throw Error(ErrorKind::wrong_result,
                fmt::format("rank {} changed data of {} before they were sent to rank {}", from_,
                            signature_.text(), to_),
                {.rank = from_,
                 .failed_rank = from_,
                 .peer = to_,
                 .hint = "data must keep their value until wait() returns"});
  }

  Request inner_;
  Signature signature_;
  Slice data_;
  int from_, to_;
  std::uint64_t checksum_;
};

class DisturbedTransport final : public TransportDecorator {
 public:
  DisturbedTransport(std::unique_ptr<Transport> inner, const Disturbance& disturbance)
      : TransportDecorator(std::move(inner)),
        disturbance_(disturbance),
        random_(disturbance.seed * 1'000'003 + static_cast<std::uint64_t>(inner_->rank())) {
    if (!disturbance.has_windows) capabilities_.windows = nullptr;
  }

  Request isend(const Call& call, Slice data, int to) override {
    delay();
    // Through a window, a neighbour may overwrite data that have arrived but still count as being
    // sent.
    if (capabilities_.windows || !data.device->is_host()) return inner_->isend(call, data, to);
    return std::make_unique<CheckedSend>(inner_->isend(call, data, to), call, data, rank(), to);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    delay();
    return inner_->irecv(call, data, from);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    delay();
    return inner_->irecv_reduce(call, growing, from, op);
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    delay();
    inner_->send_recv(call, leaving, to, arriving, from);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    delay();
    inner_->send_recv_reduce(call, leaving, to, growing, from, op);
  }
  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    return disturbed(inner_->subgroup(members), next_disturbance());
  }
  TwoEnds two_ends() override {
    TwoEnds ends = inner_->two_ends();
    for (auto& end : ends) end = disturbed(std::move(end), next_disturbance());
    return ends;
  }

 private:
  Disturbance next_disturbance() {
    return {random_(), disturbance_.longest_delay_s, disturbance_.has_windows};
  }
  // Of every four messages, one is delayed, one yields, and two start immediately.
  void delay() {
    const auto choice = random_() % 4;
    std::uniform_real_distribution<double> seconds(0, disturbance_.longest_delay_s);
    if (choice == 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds(random_)));
    else if (choice == 1)
      std::this_thread::yield();
  }

  Disturbance disturbance_;
  std::mt19937_64 random_;
};

}  // namespace

std::unique_ptr<Transport> disturbed(std::unique_ptr<Transport> inner,
                                     const Disturbance& disturbance) {
  return std::make_unique<DisturbedTransport>(std::move(inner), disturbance);
}

}  // namespace lockstep
